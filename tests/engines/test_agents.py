"""Real agent programs, driven end to end against a scripted model on loopback.

What is not installed is skipped, unless `WAZA_NEED_AGENTS` names it. `make agents` runs all of this for all of them.
"""

import asyncio
import json
import os
import sys
import uuid
from pathlib import Path

import pytest

from tests_agents import ALL, CALCULATOR, QUICK, SAMPLE, SKILL, Planted, agents, model_of, need, play, write
