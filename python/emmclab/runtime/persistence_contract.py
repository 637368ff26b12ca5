"""The persistence contract: what a flash device promises about its data after a power cut, as numbered clauses."""

import functools
import tomllib
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).parents[1] / "data" / "contract.toml"
#: Key of each interface in the file, with its name.
INTERFACES = {"emmc": "eMMC", "ufs": "UFS", "sd": "SD"}


class ContractClause(NamedTuple):
    """A clause of the persistence contract.

    Attributes:
        number: number of the clause, such as C3.
        name: what the clause is about.
        text: the promise, in full.
        standards: the commands and fields of each interface, with the section of the standard where it is known; an
            interface that is missing has no such function.
        findings: findings that show a broken clause, each as `crash:PROMISE` or `durability:FINDING`.
        lies: values of `cache.lies` that break the clause.
        tests: tests that hold the simulated devices to the clause, each as FILE::NAME.
    """

    number: str
    name: str
    text: str
    standards: dict[str, str]
    findings: tuple[str, ...]
    lies: tuple[str, ...]
    tests: tuple[str, ...]


@functools.cache
def persistence_contract() -> tuple[ContractClause, ...]:
    """Return all clauses, in order of their numbers.

    >>> persistence_contract()[2].name
    'flush'
    """
    return tuple(
        ContractClause(
            clause["id"],
            clause["name"],
            clause["text"],
            {name: clause[key] for key, name in INTERFACES.items() if key in clause},
            tuple(clause["findings"]),
            tuple(clause["lies"]),
            tuple(clause["tests"]),
        )
        for clause in tomllib.loads(_FILE.read_text(encoding="utf-8"))["clause"]
    )


def with_clauses(meaning: str, finding: str) -> str:
    """Return the meaning of a finding, followed by the clauses that it breaks.

    >>> with_clauses("acknowledged by a flush, but missing", "durability:lost")
    'acknowledged by a flush, but missing (C3)'
    """
    clauses = [clause.number for clause in persistence_contract() if finding in clause.findings]
    return f"{meaning} ({', '.join(clauses)})" if clauses else meaning
