"""The help of every command, as a terminal of 80 columns shows it."""

import re
from dataclasses import fields

import pytest

from neurosql import cli
from neurosql.settings import METHODS, section_classes

COMMANDS = [
    *(
        "",
        "train",
        "resume",
        "sample",
        "codes",
        "encode",
        "evaluate",
        "export",
        "reproduce",
        "info",
        "tune",
        "tune --method gan",
        "report",
        "data",
        "data check",
    ),
    *("data fetch", "weights", "weights fetch", "weights list", "bench", "bench list", "bench run", "bench merge"),
    *("bench migrate", *(f"train --method {name}" for name in METHODS), "train --generator unet"),
]


@pytest.fixture
def shown(monkeypatch, capsys):
    """The help of a command, at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def of(command):
        try:
            cli.main([*command.split(), "--help"])
        except SystemExit as end:
            assert end.code == 0
        return capsys.readouterr().out

    return of


@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_longer_than_the_terminal(shown, command):
    assert all(len(line) <= 80 for line in shown(command).splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_value_has_a_word_that_says_what_it_is(shown, command):
    text = shown(command)
    assert not re.findall(r"\b(STR|INT|FLOAT|BOOL)\b|\{None\}|default: None|default: \)", text)


def test_every_setting_has_its_text_in_one_piece(shown):
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", shown("train")).split())
    from neurosql.settings import words

    for kind in section_classes("neurosql").values():
        for name, said in words.of_fields(kind).items():
            assert said in text, name
        assert all(f"--{own.name.replace('_', '-')}" in text for own in fields(kind))


def test_values_have_the_words_that_the_documentation_uses(shown):
    assert "RUN " in shown("sample") and "--out PATH" in shown("sample") and "--label CLASS" in shown("sample")
    assert "--latent-dim N|auto" in shown("train") and "--window LOW HIGH" in shown("train")
    assert "NAME..." in shown("bench run") and "--shard I/K" in shown("bench run")


def test_every_command_is_on_the_first_page(shown, monkeypatch):
    text = shown("")
    for command in cli.COMMANDS:
        assert re.search(rf"^  {command.__name__.lower()} ", text, re.MULTILINE)
    monkeypatch.setenv("COLUMNS", "40")
    assert all(len(line) <= 80 for line in shown("").splitlines())


def test_without_a_command_the_first_page_is_shown_and_nothing_is_done(capsys):
    assert cli.main([]) == 2
    assert "commands:" in capsys.readouterr().out
