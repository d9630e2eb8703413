"""`infradoc rules list|lint|test`: show, check and test the catalog of rules."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from infradoc.catalog import check_catalog, load_rules
from infradoc.cli.args import Parser
from infradoc.cli.output import check_writable
from infradoc.errors import InfradocError
from infradoc.plurals import counted
from infradoc_rules.cases import CasesError, run_cases
from infradoc_rules.catalog import CASES_SUFFIX, default_dir, rule_files
from infradoc_rules.lint import lint as lint_rules
from infradoc_rules.schema import Rule

SUMMARY = "Show, check and test the catalog of rules."
HELP = """\
lint and test leave with 1 when something is wrong. PATH is a folder of rules; the packaged ones by default.
test --cases DIR diagnoses labelled incidents instead: in DIR a folder each, with its files and a label.yaml; a line for
each case that falls short, then the shares. --write FILE keeps them as a table. A label.yaml (only expect is needed):
  expect: [oom-no-kv-blocks]                  ids of `infradoc rules list`, or healthy
  also_ok: []                                 ids that are no mistake
  forbid: [oom-weights-do-not-fit]            ids that would mislead
  fix: {gpu_memory_utilization: increase}     the change that mended it

examples:
  infradoc rules list --lang zh
  infradoc rules test ./my-rules
  infradoc rules test --cases ./incidents --write accuracy.md
"""


_HEADER = {"en": ("RULE", "SEVERITY", "LOOKS AT", "TITLE"), "zh": ("规则", "级别", "依据", "标题")}


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    made = Parser(
        prog="infradoc rules", description=SUMMARY, epilog=HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("what", choices=("list", "lint", "test"), help="show, check, or run on their cases")
    made.add_argument("path", nargs="?", type=Path, metavar="PATH", help="folder of rules")
    made.add_argument(
        "--cases", type=Path, action="append", metavar="DIR", help="test: labelled incidents instead; repeatable"
    )
    made.add_argument("--write", type=Path, metavar="FILE", help="with --cases: write the table of results there")
    made.add_argument("--lang", choices=("en", "zh"), default="en", help="language of the titles")
    return made


def run(argv: list[str]) -> int:
    """Run the command; 1 when lint or test find something. Raises InfradocError for a folder that is none."""
    args = parser().parse_args(argv)
    if args.path is not None and not args.path.is_dir():
        raise InfradocError(
            f"There is no folder {args.path}.", "Give a folder of rules, or none for the packaged ones."
        )
    if args.path is not None and args.what != "lint" and not rule_files(args.path):
        raise InfradocError(f"{args.path} holds no rule files.", "Give a folder of rules: a file <id>.yaml each.")
    if args.cases is not None or args.write is not None:
        return test_cases(args)
    if args.what == "list":
        return list_rules(args.path, args.lang)
    problems = lint(args.path) if args.what == "lint" else test(args.path)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


def test_cases(args: argparse.Namespace) -> int:
    """Score labelled incidents; 1 when a case falls short. Raises InfradocError for wrong usage."""
    from infradoc.accuracy import score, table
    from infradoc.accuracy.first_runs import read_first_runs

    if args.what != "test" or args.cases is None:
        raise InfradocError(
            "--cases and --write belong to `infradoc rules test --cases DIR`.", "See `infradoc rules --help`."
        )
    for folder in args.cases:
        if not folder.is_dir():
            raise InfradocError(f"There is no folder {folder}.", "Give a folder of labelled cases.")
    if args.write is not None:
        check_writable(args.write, "--write")
    seen_first = read_first_runs(args.cases)
    catalog = load_rules(args.path)
    rows = [row for folder in args.cases for row in score.score(folder, catalog)]
    short = [row.short for row in rows if row.short]
    for text in short:
        print(text)
    print(table.line(rows))
    if args.write is not None:
        folders = " ".join(f"--cases {folder}" for folder in args.cases)
        _write(args.write, table.markdown(rows, f"infradoc rules test {folders} --write {args.write}", seen_first))
    return 1 if short else 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InfradocError(f"{path} cannot be written: {error.strerror}.", "Give another --write.") from error


def list_rules(folder: Path | None, lang: str) -> int:
    """One line per rule: id, severity, how it looks, title."""
    rules = load_rules(folder).rules
    width = max((len(rule.id) for rule in rules), default=0) + 2
    if rules:
        id_, severity, looks, title = _HEADER[lang]
        print(f"{id_:<{width}}{severity:<10}{looks:<18}{title}")
    for rule in rules:
        print(f"{rule.id:<{width}}{rule.severity:<10}{ways(rule):<18}{rule.title.get(lang)}")
    return 0


def ways(rule: Rule) -> str:
    """Whether a rule looks at live signals, at logs after the fact, or both."""
    return "+".join(word for word, part in (("live", rule.live), ("post-mortem", rule.post_mortem)) if part is not None)


def lint(folder: Path | None) -> list[str]:
    """Problems of the rule files, and for the packaged ones of what they name elsewhere."""
    problems = lint_rules(folder)
    if folder is None and not problems:
        from infradoc.cli import playbook_lint  # here: it loads every command

        problems = check_catalog(load_rules()) + playbook_lint.problems()
    _conclude("lint", counted(len(rule_files(folder or default_dir())), "rule"), problems, "all sound")
    return problems


def _conclude(what: str, counts: str, problems: list[str], good: str) -> None:
    """What was looked at and how it went; beside the problems themselves, which go to stdout."""
    result = counted(len(problems), "problem") if problems else good
    print(f"infradoc rules {what}: {counts}, {result}", file=sys.stderr)


def test(folder: Path | None) -> list[str]:
    """Problems of the rules on their cases files; a rule without one is a problem."""
    problems, count = [], 0
    catalog = load_rules(folder)
    for path in rule_files(folder or default_dir()):
        cases = path.with_name(path.stem + CASES_SUFFIX)
        if not cases.is_file():
            problems.append(f"{path}: has no {cases.name} beside it.")
            continue
        try:
            results = run_cases(catalog.get(path.stem), cases)
        except (CasesError, LookupError) as error:
            problems.append(str(error))
            continue
        count += len(results)
        problems += [f"{cases}: {result.problem}." for result in results if result.problem]
    files = counted(len(rule_files(folder or default_dir())), "rule")
    _conclude("test", f"{counted(count, 'case')} of {files}", problems, "all as expected")
    return problems
