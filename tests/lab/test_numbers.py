"""A number of a command line is read as it is written, or refused in one sentence: in every command and program."""

import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from nights import PROJECT

import prepare
import train_mlx
from agent.cli.main import COMMANDS, app_of, command_named, main
from agent.lab.numbers import NumberError, decimal, whole

BENCHMARKS = PROJECT / "benchmarks"
NO_NUMBERS = (
    *("0x10", "1_000", "inf", "nan", "-inf", "", " ", " 5", "5 ", "5\n", "-5", "-1", "+5", "none", "true", "٣", "1;5"),
    *("9" * 19, "9" * 400, "9" * 5000, "1e400", "1e", ".", "5 m"),
)
NOT_WHOLE = ("1.5", "30.0", "8733.9", "1e3", "1.", ".5")
PROGRAMS = sorted(path.stem for path in BENCHMARKS.glob("*.py") if "@measure.program" in path.read_text())


def kinds(hint: Any) -> set[type]:
    """Return the types that a value of an option, or a part of it, may have."""
    if get_origin(hint) is Annotated:
        return kinds(get_args(hint)[0])
    inner = get_args(hint)
    return set().union(*map(kinds, inner)) if inner else {hint}


def numbers_of(name: str) -> Iterator[tuple[str, type, list[str]]]:
    """Yield each option of a command that takes a number, its type, and the command line before it."""
    arguments = app_of(command_named(name), name).assemble_argument_collection()
    required = ["x" for argument in arguments if argument.required and not argument.names[0].startswith("--")]
    for argument in arguments:
        kind = {int, float} & kinds(argument.hint)
        if kind and not argument.children:
            yield argument.names[0], kind.pop(), [name, *required]


def test_there_are_options_with_numbers():
    there = {f"{name} {option}" for name in ("run", "serve", "sample") for option, *_ in numbers_of(name)}
    assert {"run --seed", "run --hours", "serve --port", "sample --tokens", "run --workers"} <= there


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_takes_what_is_no_number_of_an_option(name, capsys):
    for option, kind, before in numbers_of(name):
        for word in ("1_000", *(("1.5",) if kind is int else ())):
            assert main((*before, f"{option}={word}")) == 2
            said = capsys.readouterr().err
            assert said.startswith(f"nightshift: Invalid value for {option}: ")
            assert said.count("\n") == 1


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_benchmark_does(name, capsys, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    program = importlib.import_module(name)
    measured: Callable[..., object] = inspect.unwrap(program.main)
    for option, hint in get_type_hints(measured, include_extras=True).items():
        kind = {int, float} & kinds(hint)
        if option == "return" or not kind:
            continue
        for word in ("1_000", *(("1.5",) if int in kind else ())):
            assert program.main([f"--{option.replace('_', '-')}={word}"]) == 2, (option, word)
            assert capsys.readouterr().err.startswith(f"{name}: Invalid value for ")


@pytest.mark.parametrize(
    ("script", "options"),
    [(train_mlx, ("--budget-s", "--seed", "--max-steps")), (prepare, ("--shards", "--workers"))],
)
def test_no_script_does(script, options, capsys):
    for option in options:
        with pytest.raises(SystemExit, match="2"):
            script.main([f"{option}=1_0"])
        assert f": error: argument {option}: '1_0' is no " in capsys.readouterr().err


def test_numbers_are_read_as_they_are_written():
    assert [whole(0)(word) for word in ("0", "007", "8733", "1000000000")] == [0, 7, 8733, 10**9]
    assert [decimal()(word) for word in ("8", "0.05", "2.", ".5", "1e3", "2.5E-05")] == [8, 0.05, 2, 0.5, 1000, 2.5e-5]
    refused = [(decimal(), word) for word in (*NO_NUMBERS, "0", "1000000001", "1e10")]
    for read, word in (*refused, *((whole(0), word) for word in (*NO_NUMBERS, *NOT_WHOLE))):
        with pytest.raises(NumberError):
            read(word)
