"""`raysim show`, `raysim list` and the shell's completion: the names of an experiment file, and their keys."""

import re

import pytest
from click.testing import CliRunner

import partitioning
from algorithms.training.loss import LOSSES
from algorithms.training.optimiser_names import OPTIMISERS
from raysim.cli.commands import cli
from raysim.cli.files import KINDS, folded
from raysim.cli.listing import LISTS
from raysim.config.read import recipes
from raysim.measures.metrics import METRICS
from tests.kit.commands import invoke


@pytest.mark.parametrize("name", ["quickstart", "fedbn-quick"])
def test_show_prints_a_recipe_as_it_is(name: str) -> None:
    from raysim.reproduction.file import reproductions

    path = (recipes() | reproductions()).get(name) or next(iter(reproductions().values()))
    done = invoke("show", path.stem)
    assert done.output == path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("word", "kind"), [("optimizers", "optimisers"), ("loss", "losses"), ("Model", "models")])
def test_kinds_of_names_in_other_words(word: str, kind: str) -> None:
    assert invoke("list", word).output == invoke("list", kind).output
    assert invoke("list", f"{word}x").exit_code == 2


def test_keys_are_listed_by_table_and_one_by_one() -> None:
    local = invoke("list", "keys", "local").output.splitlines()
    assert {line.split()[0].partition(".")[0] for line in local} == {"local"}
    (line,) = invoke("list", "keys", "local.lr").output.splitlines()
    assert line.split() in [each.split() for each in local]
    assert re.fullmatch(r"local\.lr +number > 0 +0\.1 +Learning rate, > 0\.", line)
    several = invoke("list", "keys", "algorithm.proximal").output.splitlines()
    assert len(several) > 2 and all('[algorithm.name = "' in each for each in several)
    assert invoke("list", "keys", "top").output.startswith("seed ")


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("locl", "'locl': did you mean 'local'? It must be one of top, data, "),
        ("local.lrr", "'local.lrr': did you mean 'lr'? It must be one of loss, update, "),
        ("study.sed", "'study.sed': did you mean 'seeds'? It must be one of seeds, partition_seeds, "),
        ("local.nope", "'local.nope': must be one of loss, "),
        ("algorithm.fedprx", "'algorithm.fedprx': did you mean 'fedprox'? It must be one of "),
        ("nowhere.key", "'nowhere.key': must be one of top, data, "),
    ],
)
def test_an_unknown_table_or_key_names_the_nearest(word: str, message: str) -> None:
    done = invoke("list", "keys", word)
    assert done.exit_code and message in str(done.exception)


def test_the_keys_of_a_named_thing_are_listed_by_its_name() -> None:
    lines = invoke("list", "keys", "algorithm.fedprox").output.splitlines()
    assert [line.split()[0] for line in lines] == ["algorithm.proximal", "algorithm.weighting"]
    assert all(line.endswith('[algorithm.name = "fedprox"]') for line in lines)
    assert invoke("list", "keys", "algorithm.fedtan").output.startswith("algorithm.fedtan  no keys of its own")


def test_a_terminal_folds_a_line_between_words() -> None:
    line = f"local.lr  {'word ' * 30}end"
    assert folded(line, None, 8) == [line] and folded("short", 40, 8) == ["short"]
    shown = folded(line, 40, 8)
    assert len(shown) > 3 and max(map(len, shown)) <= 40 and all(re.match(r" {8}\S", each) for each in shown[1:])
    assert " ".join(each.strip() for each in shown) == line
    assert all(re.match(r" {4}\S", each) for each in folded(line, 40, 30)[1:])


def test_every_kind_has_a_list_and_every_scheme_its_keys() -> None:
    assert sorted([*LISTS, "keys"]) == list(KINDS)
    assert list(LISTS["schemes"]()) == list(partitioning.SCHEMES)
    for kind, names in (("losses", LOSSES), ("metrics", METRICS), ("optimisers", OPTIMISERS)):
        lines = dict(LISTS[kind]())
        assert set(names) <= set(lines) and all(lines.values())


def test_a_shell_completes_commands_and_recipes() -> None:
    for words, number, wanted in (("raysim r", 1, "resume"), ("raysim run quick", 2, "quickstart")):
        shell = {"_RAYSIM_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
        done = CliRunner(env=shell).invoke(cli, prog_name="raysim", complete_var="_RAYSIM_COMPLETE")
        assert f"plain,{wanted}" in done.output
