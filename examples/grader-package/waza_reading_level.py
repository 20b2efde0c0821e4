"""Two graders for a package of one's own: a class with options, and a function."""

from collections.abc import Iterator

import waza
from waza import Check, Trace


class ReadingLevelGrader(waza.Grader):
    """Check that sentences are short.

    ```yaml
    - type: reading_level
      config:
        max_words: 20
    ```
    """

    max_words: int = 20
    """Most words in one sentence."""

    def checks(self, trace: Trace) -> Iterator[Check]:
        """Yield one check per sentence."""
        for sentence in filter(None, map(str.strip, trace.output.replace("!", ".").replace("?", ".").split("."))):
            words = len(sentence.split())
            failure = f"{words} words: {sentence[:60]}"
            yield Check(words <= self.max_words, "the sentence is short", failure, self.max_words, words)


@waza.grader
def no_shouting(trace: Trace, most: int = 0) -> bool:
    "Nothing is written in capitals alone."
    return sum(word.isupper() and len(word) > 1 for word in trace.output.split()) <= most
