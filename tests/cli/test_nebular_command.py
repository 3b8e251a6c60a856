"""The commands `rubix-like nebular ...` and `rubix-like list lines`."""

import re

import pytest
from command_line import main

from rubix_like.extend import resource


@pytest.fixture
def command(monkeypatch, tmp_path, capsys, jax_settings):
    monkeypatch.setenv("RUBIX_LIKE_CACHE", str(tmp_path / "cache"))

    def run(*words):
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_tables(command, tmp_path):
    packaged = resource("data", "mappings-hii")
    _, text, _ = command("nebular", "list")
    assert [line.split()[0] for line in text.splitlines()] == ["mappings-hii", "nlr", "bagpipes", "fsps"]
    assert "rubix-like nebular get bagpipes" in text
    code, text, _ = command("nebular", "info", "mappings-hii")
    assert code == 0
    assert all(words in text for words in ("[O III] 5007", "MIT, Copyright 2017", "ApJ 856, 89", "12, 4.2 to 8.6"))
    assert f"Table mappings-hii is in {packaged}" in command("nebular", "get", "mappings-hii")[1]
    code, text, _ = command("nebular", "import", packaged, "--name", "mine")
    assert (code, str(tmp_path / "cache" / "nebular" / "mine.h5") in text) == (0, True)
    assert re.search("^mine +in the cache", command("nebular", "list")[1], re.M)
    for words, remedy in (
        (("info", "mapping"), "did you mean 'mappings-hii'"),
        (("info", "nlr"), r"fetch it once \(4 MB\) with: rubix-like nebular get nlr"),
        (("get", "nlrs"), "did you mean 'nlr'"),
        (("import", "absent.fits"), "no such file or folder: absent.fits"),
    ):
        code, text, error = command("nebular", *words)
        assert (code, text) == (2, "")
        assert re.search(remedy, error), error
    _, text, _ = command("list", "lines")
    assert re.search(r"^\[O III\] 5007 +5008\.240 A \(vacuum\) +O III$", text, re.M)
