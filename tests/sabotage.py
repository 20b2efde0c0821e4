"""Sabotage: deliberate one-line faults in safety code, put into a copy one at a time; a named test must notice each.

`python tests/sabotage.py` runs the named tests on the copy as it is (all must pass), then once for each fault (each
must fail). A fault whose text is not in its file exactly once is an error, so the table cannot outlive the code.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

from campaign import count

ROOT = Path(__file__).parent.parent
TIME_LIMIT_S = 240


class Fault(NamedTuple):
    """One line of the package replaced by a wrong one, and the test that must notice."""

    what: str
    file: str
    """Below `src/waza`."""
    right: str
    wrong: str
    test: str
    """Below `tests`: a file and a test in it."""


FAULTS = [
    # Nothing paid for is lost: journal, files, resume
    Fault(
        "the journal does not sync",
        "runs/journal.py",
        "                self._disk.sync(self._fd)\n",
        "                pass\n",
        "runs/test_journal_crash.py::test_what_was_acknowledged_survives_a_power_cut_because_of_the_sync",
    ),
    Fault(
        "a failed write cuts more than it added",
        "runs/journal.py",
        "                self._disk.truncate(self._fd, end - own)\n",
        "                self._disk.truncate(self._fd, max(0, size - 1))\n",
        "runs/test_signing.py::test_what_a_failed_write_leaves_is_cut_and_no_byte_of_others",
    ),
    Fault(
        "a half-written record stays after a failed write",
        "runs/journal.py",
        "            if own:\n                self._disk.truncate(self._fd, end - own)\n",
        "            if own:\n",
        "runs/test_journal_faults.py::test_what_is_half_written_is_taken_out_before_the_next_record",
    ),
    Fault(
        "any signature fits",
        "runs/signing.py",
        "        return compare_digest(self.own, keyed_hash(key, _JOURNALS, payload[:-_OWN_BYTES]))\n",
        "        return True\n",
        "runs/test_signing.py::test_a_run_of_another_user_is_readable_unverified_and_can_be_continued",
    ),
    Fault(
        "records without a signature count in a signed journal",
        "runs/signing.py",
        "        if self.is_ours or self.refuses_unsigned or not self._follows(signature):\n",
        "        if self.refuses_unsigned:\n",
        "runs/test_signing.py::test_a_record_that_an_agent_appends_is_reported_and_not_counted",
    ),
    Fault(
        "a record may be repeated or moved",
        "runs/signing.py",
        "        if self.is_ours and signature.place < self.place:\n",
        "        if False:\n",
        "runs/test_signing.py::test_records_that_are_moved_repeated_or_removed_are_reported",
    ),
    Fault(
        "records of another run count",
        "runs/signing.py",
        "        if self.journal and signature.journal != self.journal:\n",
        "        if False:\n",
        "runs/test_signing.py::test_records_of_another_run_of_the_same_user_do_not_count",
    ),
    Fault(
        "a key that others can read is used",
        "runs/signing.py",
        "found.st_mode & 0o077):\n",
        "found.st_mode & 0o000):\n",
        "runs/test_signing.py::test_the_key_is_the_user_s_own_and_made_once",
    ),
    Fault(
        "a run is read for --resume without its lock",
        "runner/resume.py",
        "    kept = RunFolder.open(folder)\n",
        "    kept = RunFolder.open(folder)\n    kept.close()\n",
        "runner/test_resume.py::test_a_run_is_held_from_the_moment_it_is_read_for_a_resume",
    ),
    Fault(
        "checksums are not compared",
        "runs/records.py",
        'line[:8] == b"%08x" % crc32(payload)',
        "len(line) > 9",
        "runs/test_journal_damage.py::test_a_flip_of_some_bits_costs_at_most_the_record_it_hits",
    ),
    Fault(
        "a short write is taken for a whole one",
        "files/disk.py",
        "        view = view[written:]\n",
        "        view = view[len(view) :]\n",
        "runs/test_journal.py::test_a_short_write_is_finished",
    ),
    Fault(
        "a second writer gets the lock too",
        "files/disk.py",
        "        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)\n",
        "runs/test_journal.py::test_a_second_writer_in_one_process_is_refused_too",
    ),
    Fault(
        "the old file is removed before the new one is written",
        "files/disk.py",
        "        _write_new(temp, [text] if isinstance(text, bytes) else _large(text), disk, mode)\n",
        "        path.unlink(missing_ok=True)\n        _write_new(temp, [text], disk, mode)  # type: ignore\n",
        "runs/test_journal_faults.py::test_an_old_file_is_intact_after_a_failed_write_and_nothing_lies_beside_it",
    ),
    Fault(
        "an atomic write is renamed before it is synced",
        "files/disk.py",
        "            write_all(disk, fd, piece)\n        disk.sync(fd)\n",
        "            write_all(disk, fd, piece)\n",
        "runs/test_journal_faults.py::test_an_old_file_is_intact_after_a_failed_write_and_nothing_lies_beside_it",
    ),
    Fault(
        "a link in a run folder is followed",
        "files/disk.py",
        'getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)',
        'getattr(os, "O_BINARY", 0)',
        "server/test_serve.py::test_links_in_a_run_folder_are_not_followed",
    ),
    Fault(
        "a result is reported before it is stored, with one worker",
        "runner/journal_writer.py",
        "            for written in self._store(result):\n",
        "            self._on_result(result)\n            for written in self._store(result):\n",
        "runner/test_run.py::test_each_result_is_stored_before_anyone_hears_of_it",
    ),
    Fault(
        "a result is reported before it is stored, with several workers",
        "runner/journal_writer.py",
        "        self._waiting.append((result, safe))\n",
        "        self._waiting.append((result, safe))\n        self._on_result(result)\n",
        "runner/test_journal_writer.py::test_a_result_is_told_as_it_was_kept_and_only_then",
    ),
    Fault(
        "--resume goes on though the suite changed",
        "runner/resume.py",
        "    if changed and not rerun_changed:\n",
        "    if changed and rerun_changed:\n",
        "runner/test_resume.py::test_a_changed_prompt_is_refused_and_named_and_rerun_changed_runs_just_that",
    ),
    # Files: workspace, snapshot, copies
    Fault(
        "the live workspace is graded instead of the snapshot",
        "runner/trial.py",
        "SnapshotFiles(context.artifacts, name, checkpoints.snapshots)",
        "Workspace(room.workspace)",
        "runner/test_run.py::test_what_changes_the_workspace_after_the_agent_changes_no_grade",
    ),
    Fault(
        "`..` leads out of the workspace",
        "files/paths.py",
        "            if not parts:\n",
        "            parts = parts or ['..', 'x']\n            if not parts:\n",
        "files/test_trial_folder.py::test_an_input_file_cannot_be_laid_outside",
    ),
    Fault(
        "an absolute path is taken for one in the workspace",
        "files/paths.py",
        '    if PurePosixPath(path).is_absolute() or PureWindowsPath(path).anchor or path.startswith("~"):\n',
        '    if PureWindowsPath(path).drive or path.startswith("~"):\n',
        "files/test_workspace.py::test_a_path_that_leaves_the_workspace_is_outside",
    ),
    Fault(
        "a path of the suite leaves the project",
        "files/paths.py",
        "        if not candidate.is_relative_to(within or self.root) and candidate != self.named:\n",
        "        if False:\n",
        "suites/test_local_code.py::test_only_files_of_the_project",
    ),
    Fault(
        "a link that climbs above the workspace is followed",
        "files/workspace.py",
        "                    return _LEADS_OUT\n                os.close(folders.pop())\n",
        "                    folders.insert(0, os.open('..', _PASS, dir_fd=folders[0]))\n"
        "                folders.pop()\n",
        "files/test_workspace.py::test_a_link_that_leads_out_is_outside_and_never_read",
    ),
    Fault(
        "a hard link is read",
        "files/workspace.py",
        "    if info.st_nlink > 1:\n",
        "    if info.st_nlink > 99:\n",
        "files/test_workspace.py::test_a_hard_link_is_there_but_cannot_be_read",
    ),
    Fault(
        "a hard link is copied into the snapshot",
        "files/snapshot.py",
        '            if entry.info.st_nlink > 1:\n                return SnapshotItem(path=path, kind="outside")\n',
        '            if entry.info.st_nlink > 99:\n                return SnapshotItem(path=path, kind="outside")\n',
        "files/test_snapshot.py::test_nothing_outside_is_copied",
    ),
    Fault(
        "a damaged object is given out",
        "files/snapshot.py",
        '    if digest.hexdigest() != name:\n        raise OSError(errno.EIO, "the stored copy is damaged")\n',
        '    if False:\n        raise OSError(errno.EIO, "the stored copy is damaged")\n',
        "files/test_snapshot.py::test_a_damaged_copy_is_an_error_and_never_other_content",
    ),
    Fault(
        "a workspace that was replaced by a link is followed",
        "files/tree.py",
        'OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NO_LINK\n',
        'OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)\n',
        "files/test_snapshot.py::test_a_workspace_the_agent_removed_or_replaced_counts_as_empty",
    ),
    Fault(
        "an input link that leads out stays in the workspace",
        "files/trial_folder.py",
        '        for path in [path for path in self.links if files.kind(path) == "outside"]:\n',
        '        for path in [path for path in self.links if files.kind(path) == "nowhere"]:\n',
        "files/test_trial_folder.py::test_from_a_zoo_only_harmless_things_are_copied_and_the_rest_is_named",
    ),
    # Assertions, patterns, schemas, YAML: what others wrote
    Fault(
        "assertions may read attributes with an underscore",
        "untrusted/python_expressions.py",
        '    if name.startswith("_"):\n',
        '    if name.startswith("__builtins"):\n',
        "untrusted/test_python_expressions.py::test_what_is_not_available_is_refused_when_it_is_parsed",
    ),
    Fault(
        "attributes are not looked at while an assertion runs",
        "untrusted/python_evaluator.py",
        "    if not available(value, name) and hasattr(value, name):\n",
        "    if False:\n",
        "untrusted/test_python_evaluator.py::test_what_only_shows_while_running_is_undecided_and_not_failed",
    ),
    Fault(
        "format strings are not looked at",
        "untrusted/python_evaluator.py",
        "    if type(template) is str and (reason := unavailable_in_format(template)):\n",
        "    if (reason := '') and type(template) is str:\n",
        "untrusted/test_python_evaluator.py::test_what_only_shows_while_running_is_undecided_and_not_failed",
    ),
    Fault(
        "the evaluator keeps its rights",
        "untrusted/python_evaluator.py",
        "            linux_sandbox.enter_seccomp()\n",
        "            pass\n",
        "untrusted/test_python_evaluator.py::test_code_that_escapes_the_language_reaches_no_file_program_or_socket",
    ),
    Fault(
        "refused system calls are allowed",
        "process/linux_sandbox.py",
        "    steps += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]\n    _install(steps)\n\n\ndef restrict",
        "    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ALLOW)]\n    _install(steps)\n\n\ndef restrict",
        "untrusted/test_python_evaluator.py::test_code_that_escapes_the_language_reaches_no_file_program_or_socket",
    ),
    Fault(
        "an assertion's memory is not limited",
        "untrusted/python_evaluator.py",
        '    limits = {"AS": MEMORY_BYTES, "FSIZE": 0,',
        '    limits = {"FSIZE": 0,',
        "untrusted/test_python_evaluator.py::test_the_worker_has_nothing_but_two_pipes_and_a_bounded_memory",
    ),
    Fault(
        "an assertion may have any number of parts",
        "untrusted/python_expressions.py",
        "MAX_NODES = 2_000\n",
        "MAX_NODES = 2_000_000\n",
        "untrusted/test_python_expressions.py::test_what_is_not_one_expression_is_refused_with_its_place",
    ),
    Fault(
        "an assertion that is always true is accepted",
        "untrusted/python_expressions.py",
        "(*_refusals(nodes), *constant_python(tree, BUILT_IN_NAMES, _methods()))",
        "(*_refusals(nodes),)",
        "untrusted/test_constant_assertions.py::test_a_constant_python_assertion_is_refused_with_the_reason",
    ),
    Fault(
        "a search in a text has no time limit",
        "process/question_worker.py",
        "        late.set()\n        process.kill()\n",
        "        late.set()\n",
        "untrusted/test_patterns.py::test_a_worker_that_hangs_is_killed_from_outside",
    ),
    Fault(
        "a pattern may be of any length",
        "untrusted/patterns.py",
        "MAX_PATTERN_CHARS = 5_000\n",
        "MAX_PATTERN_CHARS = 5_000_000\n",
        "untrusted/test_patterns.py::test_what_re2_refuses_for_another_reason_is_refused_in_plain_words",
    ),
    Fault(
        "a key that is there twice overwrites the first",
        "untrusted/yaml.py",
        "            elif key in places:\n",
        "            elif key in ():\n",
        "untrusted/test_yaml.py::TestRefusals::test_a_duplicate_key_names_both_lines",
    ),
    Fault(
        "YAML aliases may multiply",
        "untrusted/yaml.py",
        "        self._expanded += size\n",
        "        self._expanded += 1\n",
        "untrusted/test_yaml.py::TestBudgets::test_an_alias_bomb_is_refused_before_it_is_expanded",
    ),
    Fault(
        "YAML may be nested without end",
        "untrusted/yaml.py",
        "        if len(self._open) > MAX_DEPTH:\n",
        "        if len(self._open) > 100 * MAX_DEPTH:\n",
        "untrusted/test_yaml.py::TestBudgets::test_nesting_ends_at_its_limit",
    ),
    # Programs: time, descendants, environment, isolation
    Fault(
        "descendants are not ended",
        "process/descendants.py",
        "        for pid in descendants(spare):\n            send(pid, signal.SIGKILL)\n",
        "        return 0\n",
        "process/test_supervisor.py::test_nothing_is_left_when_a_program_ends_well_but_leaves_daemons",
    ),
    Fault(
        "orphans are not adopted",
        "process/descendants.py",
        "        libc().prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)\n",
        "        libc().prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)\n",
        "process/test_supervisor.py::test_nothing_is_left_when_time_runs_out",
    ),
    Fault(
        "a program has forty times its time",
        "process/supervisor.py",
        "        end = self._wait(self._ended, self.job.timeout_s)\n",
        "        end = self._wait(self._ended, self.job.timeout_s * 40)\n",
        "process/test_run_program.py::test_a_program_out_of_time_is_ended_and_what_it_printed_is_kept",
    ),
    Fault(
        "programs inherit our whole environment",
        "process/run_program.py",
        'if name.upper() in passed or name.startswith("LC_")}',
        "}",
        "process/test_run_program.py::test_secrets_and_hijackers_of_our_own_environment_stay_out",
    ),
    Fault(
        "the number of processes is not limited",
        "process/supervisor.py",
        "                if 0 < self.job.processes < len(descendants()):\n",
        "                if 0 < 100 * self.job.processes < len(descendants()):\n",
        "process/test_supervisor.py::test_a_bomb_of_processes_is_defused",
    ),
    Fault(
        "an isolation that does not exist is left out",
        "process/isolation.py",
        "    if kind not in KINDS:\n",
        '    if kind not in KINDS and (kind := "none") != "none":\n',
        "process/test_isolation.py::test_an_isolation_that_is_not_known_is_refused",
    ),
    Fault(
        "the Landlock sandbox is not entered",
        "process/linux_sandbox.py",
        "    checked(libc().syscall(_RESTRICT_SELF, ruleset, 0))\n",
        "    return\n",
        "process/test_isolation.py::test_processes_outside_cannot_be_signalled_or_read",
    ),
    Fault(
        "sockets are not refused in a sandbox",
        "process/linux_sandbox.py",
        "(_INET, network), (_INET6, network)) if open_]\n",
        "(_INET, True), (_INET6, True)) if open_]\n",
        "process/test_isolation.py::test_no_probe_gets_through_an_isolation_but_those_that_are_reported",
    ),
    # Consent
    Fault(
        "every folder is trusted",
        "files/trust.py",
        "        return covering(folder, read_records()) is not None\n",
        "        return True\n",
        "files/test_trust.py::test_nothing_of_a_folder_that_is_not_trusted_runs_where_one_only_looks",
    ),
    Fault(
        "a trust record that others can write is believed",
        "files/trust.py",
        "found.st_mode & 0o022:\n",
        "found.st_mode & 0o000:\n",
        "files/test_trust.py::test_a_record_that_cannot_be_believed_trusts_nothing_and_says_so",
    ),
    Fault(
        "the project's folder becomes the user's configuration",
        "files/trust.py",
        '"XDG_CONFIG_HOME", "")\n    if named and Path(named).is_absolute():\n',
        '"XDG_CONFIG_HOME", "")\n    if named:\n',
        "files/test_trust.py::test_a_relative_configuration_folder_is_ignored",
    ),
    # Judges
    Fault(
        "a tool that was not offered counts as a verdict",
        "judges/verdict_tools.py",
        "        if call.name not in names:\n",
        "        if not call.name:\n",
        "judges/test_sdk.py::test_what_is_no_verdict_is_an_error_after_one_reminder",
    ),
    Fault(
        "a score outside of the scale counts",
        "judges/verdict_tools.py",
        '    """A verdict on the scale from 1 to 5."""\n\n    score: Annotated[int, Meta(ge=1, le=5)]\n',
        '    """A verdict on the scale from 1 to 5."""\n\n    score: Annotated[int, Meta(ge=0, le=50)]\n',
        "judges/test_sdk.py::test_a_score_that_is_not_on_the_scale_is_no_score",
    ),
    Fault(
        "the fence's marker does not depend on the text it fences",
        "judges/fencing.py",
        "        digest.update(encoded)\n",
        "        pass\n",
        "judges/test_injection.py::test_equal_questions_have_equal_markers_and_others_have_not",
    ),
    Fault(
        "the names of verdict tools are left in judged text",
        "judges/fencing.py",
        '    return _TOOL_NAMES.sub(lambda match: match[0][:3] + "‗" + match[0][4:], shown)\n',
        "    return shown\n",
        "judges/test_injection.py::test_control_tokens_and_the_names_of_verdict_tools_are_broken",
    ),
    Fault(
        "verdicts that contradict each other: the first counts",
        "judges/verdict_tools.py",
        "    if len({decisive(item) for item in verdicts}) > 1:\n",
        "    if not verdicts:\n",
        "judges/test_sdk.py::test_scores_that_do_not_agree_are_no_score",
    ),
    Fault(
        "a verdict that somebody else put into the cache counts",
        "judges/asking.py",
        "    if signing is None or not compare_digest(signature, _signature(signing, key, content)):\n",
        "    if signing is None:\n",
        "judges/test_asking.py::test_an_entry_of_the_cache_that_somebody_else_wrote_is_not_believed",
    ),
    Fault(
        "what earlier attempts of a trial cost is forgotten",
        "runner/trial.py",
        "        attempt_log=[*log, own],\n",
        "        attempt_log=[own],\n",
        "runner/test_max_cost.py::test_what_an_agent_reported_counts_however_its_trial_ends_and_every_attempt_counts",
    ),
    Fault(
        "a judge's request that came to no verdict costs nothing",
        "judges/base.py",
        "            bill(error.spending)\n",
        "            error.spending = NOTHING\n",
        "judges/test_sdk.py::test_every_billed_request_counts_whatever_came_of_it",
    ),
    Fault(
        "a run goes on though its cost limit is reached",
        "runner/schedule.py",
        "        if self.spent >= self.limit:\n",
        "        if False:\n",
        "runner/test_resume.py::test_max_cost_stops_cleanly_and_resume_goes_on",
    ),
    # Passed, failed and undecided are never mixed
    Fault(
        "a grader that breaks fails the agent",
        "runner/grading.py",
        '    if "error" in statuses:\n        return "error", ""\n',
        '    if "error" in statuses:\n        return "failed", ""\n',
        "runner/test_run.py::test_passed_failed_and_undecided_are_kept_apart",
    ),
    Fault(
        "an agent that could not run has failed",
        "runner/grading.py",
        '    if trace.status == "error":\n        return "error",',
        '    if trace.status == "error":\n        return "failed",',
        "runner/test_run.py::test_passed_failed_and_undecided_are_kept_apart",
    ),
    Fault(
        "a grader that checked nothing has passed",
        "graders/base.py",
        '            return Finding("error", 0.0, "the grader checked nothing")\n',
        '            return Finding("passed", 1.0, "")\n',
        "graders/test_every_grader.py::test_a_grader_that_checks_nothing_decides_nothing",
    ),
    Fault(
        "an undecided check counts as passed",
        "graders/base.py",
        '        return Finding("error", 0.0, feedback, checks, details)\n',
        '        return Finding("passed", 1.0, feedback, checks, details)\n',
        "graders/test_code.py::test_evidence_that_was_not_recorded_makes_undecided_only_what_names_it",
    ),
    Fault(
        "undecided tasks give exit code 0",
        "runs/summary.py",
        '    return EXIT_UNDECIDED if "error" in (*statuses, *gates) or not (statuses or triggers) else EXIT_PASSED\n',
        "    return EXIT_UNDECIDED if not (statuses or triggers) else EXIT_PASSED\n",
        "runs/test_summary.py::test_the_exit_code_follows_the_worst_that_is_certain",
    ),
    Fault(
        "an undecided gate is met",
        "analysis/gate.py",
        'EXIT_UNDECIDED if "error" in statuses else EXIT_PASSED\n',
        "EXIT_PASSED\n",
        "analysis/test_gate.py::test_the_worst_gate_decides_the_exit_code",
    ),
    Fault(
        "a partial run passes a gate",
        "analysis/gate.py",
        "    return [*partial, *found] if found and not allow_partial else found\n",
        "    return found\n",
        "analysis/test_gate.py::test_a_partial_run_is_undecided_and_says_what_is_missing",
    ),
    Fault(
        "prompts are asked though a trigger control failed",
        "runner/resume.py",
        "        return not self.failed\n",
        "        return True\n",
        "skills/test_trigger_controls.py::test_no_prompt_is_asked_once_the_control_did_not_register",
    ),
    Fault(
        "a schema is fetched from the network",
        "untrusted/json_schema.py",
        "            retriever=refuse,\n",
        "",
        "untrusted/test_json_schema.py::test_nothing_is_fetched_for_a_reference_wherever_it_is",
    ),
    # Secrets
    Fault(
        "a secret that a stream cuts in pieces is not found",
        "runs/redaction.py",
        "        return self._give(text, max(0, len(text) - max(0, self._redactor.longest - 1)))\n",
        "        return self._give(text, len(text))\n",
        "runs/test_redaction.py::test_random_pieces_of_a_stream_hide_no_secret",
    ),
    Fault(
        "secrets in keys are kept",
        "runs/redaction.py",
        "            new = self.text(key if isinstance(key, str) else next(iter(_as_written({key: None}))))\n",
        "            new = key if isinstance(key, str) else next(iter(_as_written({key: None})))\n",
        "runs/test_redaction.py::test_data_is_walked_with_its_keys_and_numbers",
    ),
    Fault(
        "secrets in base64 are kept",
        "runs/redaction.py",
        "    forms = {text, raw.hex(), *_url_forms(raw), *_base64_forms(raw)}\n",
        "    forms = {text, raw.hex(), *_url_forms(raw)}\n",
        "runs/test_redaction.py::test_a_secret_is_found_in_every_encoding_wherever_it_stands",
    ),
    Fault(
        "secrets reach the copies of workspace files",
        "files/snapshot.py",
        "            content = self.clean(file.read(size))\n",
        "            content = file.read(size)\n",
        "files/test_snapshot.py::test_what_takes_secrets_out_reaches_contents_and_names_and_links",
    ),
    # Reports and dashboard
    Fault(
        "text of an agent becomes markup",
        "reports/html/markup.py",
        "        out.append(escape(visible(node)))\n",
        "        out.append(visible(node))\n",
        "server/test_pages.py::test_a_page_with_all_of_them_is_strict_whole_and_as_a_file",
    ),
    Fault(
        "a link of ours may lead elsewhere",
        "reports/html/markup.py",
        '        if name in _LOCAL and (value.startswith(("//", "/\\\\")) or value[:1] not in "/#?"):\n',
        "        if False:\n",
        "server/test_pages.py::test_an_address_that_leads_elsewhere_cannot_be_written",
    ),
    Fault(
        "control characters reach the terminal",
        "untrusted/text.py",
        "        text = _CONTROL.sub(_escape, text)\n",
        "        pass\n",
        "reports/test_every_report.py::test_no_text_stops_a_report_and_a_terminal_obeys_none_of_it",
    ),
    Fault(
        "the dashboard answers to any host",
        "server/guard.py",
        "        if len(hosts) != 1 or hosts[0] not in self._hosts:\n",
        "        if len(hosts) != 1:\n",
        "server/test_guard.py::test_another_host_is_refused",
    ),
    Fault(
        "the dashboard answers to other sites",
        "server/guard.py",
        "        if len(origins) > 1 or any(origin not in self._origins for origin in origins):\n",
        "        if len(origins) > 1:\n",
        "server/test_guard.py::test_another_origin_is_refused",
    ),
    Fault(
        "a link of the dashboard works twice",
        "server/guard.py",
        "        self._links = [link for link in self._links if link not in used]\n",
        "        self._links = list(self._links)\n",
        "server/test_guard.py::test_a_link_works_once_and_only_at_the_front_door",
    ),
    Fault(
        "pages are shown without the session's cookie",
        "server/guard.py",
        "        elif not is_known:\n",
        "        elif False:\n",
        "server/test_guard.py::test_without_the_session_s_cookie_nothing_is_shown",
    ),
    Fault(
        "a form without its key is accepted",
        "server/app.py",
        'not compare_digest(form.get("form_key").encode(), page_request.form_key.encode()):\n',
        'not form.get("form_key"):\n',
        "server/test_review_page.py::test_a_form_that_is_not_right_writes_nothing",
    ),
]


class Copy:
    """A copy of the package and its tests, with an interpreter that imports the copy and nothing of the original."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        leave_out = shutil.ignore_patterns("__pycache__", "*.pyc")
        for name in ("src", "tests", "examples", "docs"):
            if (ROOT / name).exists():
                shutil.copytree(ROOT / name, folder / name, ignore=leave_out, symlinks=True)
        for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "action.yml", "Makefile"):
            if (ROOT / name).exists():
                shutil.copy(ROOT / name, folder / name)
        venv.create(folder / ".venv", symlinks=True)
        self.python = folder / ".venv" / "bin" / "python"
        packages = next((folder / ".venv" / "lib").glob("python*/site-packages"))
        # A path in a .pth file is searched, but .pth files below it are not read: so the original, which is installed
        # by one of them, is out of reach, for children that ignore PYTHONPATH as well.
        installed = next(path for path in sys.path if (Path(path) / "pytest").is_dir())
        (packages / "copy.pth").write_text(f"{folder / 'src'}\n{installed}\n")
        # By content: a fault and its removal within one second would leave times and sizes as they are.
        made = [self.python, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "src", "tests"]
        subprocess.run(made, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    def run(self, tests: Sequence[str], *, jobs: int = 1) -> tuple[int, str]:
        """Run tests; return pytest's exit code and what it printed."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("WAZA_", "PYTHON"))}
        options = ["-q", "-rfE", "--tb=no", "--timeout=120", "-p", "no:cacheprovider", "-m", "not campaign"]
        options += ["-n", str(jobs)] if jobs > 1 else ["-x"]
        command = [self.python, "-m", "pytest", *options, *(f"tests/{test}" for test in tests)]
        try:
            ended = subprocess.run(
                command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=TIME_LIMIT_S * 5
            )
        except subprocess.TimeoutExpired:
            return -1, "the tests did not come to an end"
        return ended.returncode, ended.stdout + ended.stderr

    def notices(self, fault: Fault) -> str:
        """Put a fault in, run its test and take it out; return nothing where it was noticed, else what happened."""
        place = self.folder / "src" / "waza" / fault.file
        right = place.read_text()
        place.write_text(right.replace(fault.right, fault.wrong))
        try:
            code, printed = self.run([fault.test])
        finally:
            place.write_text(right)
        # A test that cannot even be collected proves nothing, and neither does one that was skipped.
        if code == 1 and re.search(r"^FAILED ", printed, re.MULTILINE):
            return ""
        return f"pytest ended with {code}: {printed.strip()[-400:]}"


def misplaced(fault: Fault) -> str:
    """Return what is wrong with an entry of the table; nothing when its text and its test are there."""
    source = ROOT / "src" / "waza" / fault.file
    found = source.read_text().count(fault.right) if source.exists() else 0
    if found != 1:
        return f"{fault.file}: the text of '{fault.what}' is there {found} times: {fault.right.strip()[:80]!r}"
    file, *names = fault.test.split("::")
    test = ROOT / "tests" / file
    if not test.exists() or not all(re.search(rf"\b(def|class) {name}\b", test.read_text()) for name in names):
        return f"tests/{fault.test}, which is to notice '{fault.what}', is not there"
    return "" if fault.right != fault.wrong else f"'{fault.what}' changes nothing"


def main() -> int:
    """Sabotage the package by every fault, or by those whose words are named; return 1 when one was not noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only faults whose description, file or test holds one of these")
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    chosen = [one for one in FAULTS if not given.words or any(word in " ".join(one) for word in given.words)]
    if wrong := [sentence for fault in chosen if (sentence := misplaced(fault))]:
        print("\n".join(wrong))
        return 1
    with tempfile.TemporaryDirectory(prefix="waza-sabotage-") as folder:
        copies = [Copy(Path(folder, str(number)).resolve()) for number in range(given.jobs)]
        code, printed = copies[0].run(sorted({fault.test for fault in chosen}), jobs=given.jobs)
        if code:
            print(f"without any fault the tests fail already:\n{printed[-3000:]}")
            return 1
        print(f"without a fault: {printed.strip().splitlines()[-1]}", flush=True)
        free: Queue[Copy] = Queue()
        for copy in copies:
            free.put(copy)

        def sabotage(fault: Fault) -> bool:
            copy = free.get()
            try:
                trouble = copy.notices(fault)
            finally:
                free.put(copy)
            print(f"{'NOT noticed' if trouble else 'noticed'}: {fault.what} ({fault.file}; {fault.test})", flush=True)
            if trouble:
                print(trouble, flush=True)
            return not trouble

        with ThreadPoolExecutor(given.jobs) as pool:
            noticed = list(pool.map(sabotage, chosen))
    count("sabotages noticed", sum(noticed))
    count("sabotages not noticed", len(noticed) - sum(noticed))
    print(f"{sum(noticed)} of {len(noticed)} sabotages were noticed")
    return 0 if all(noticed) else 1


if __name__ == "__main__":
    sys.exit(main())
