"""The `opencode` reader: it alone recognises its files and reads them whole."""

import pytest
from trace_recordings import check_file_of, files_like


@pytest.mark.parametrize("file", files_like("recordings/opencode-*"))
def test_it_alone_recognises_its_files_and_reads_them_whole(file):
    check_file_of("opencode", file)
