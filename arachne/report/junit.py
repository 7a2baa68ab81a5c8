"""Gates as a JUnit file, which every CI system can show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree import ElementTree

from arachne.evidence import GateResult, Verdict
from arachne.text import printable

SUITE = "arachne"


def junit_xml(gates: Sequence[GateResult], verdict: Verdict, *, seconds: float = 0.0) -> bytes:
    """One test per gate, with its value; the verdict as a property and in the output.

    Args:
        gates: The gates.
        verdict: What the evidence came to.
        seconds: How long the run took; a gate by itself takes no time, so it has none.
    """
    root = ElementTree.Element("testsuites")
    failures = str(sum(gate.failed for gate in gates))
    tests = ElementTree.SubElement(
        root,
        "testsuite",
        name=SUITE,
        tests=str(len(gates)),
        failures=failures,
        errors="0",
        skipped="0",
        time=f"{seconds:.3f}",
    )
    properties = ElementTree.SubElement(tests, "properties")
    said = {
        "verdict": verdict.word,
        "heading": verdict.heading,
        "balance": verdict.balance,
        "budget": verdict.limit_state,
    }
    for name, value in said.items():
        ElementTree.SubElement(properties, "property", name=name, value=_legal(value))
    for gate in gates:
        case = ElementTree.SubElement(tests, "testcase", classname=SUITE, name=_legal(gate.gate.text))
        if gate.failed:
            failure = ElementTree.SubElement(case, "failure", type="gate", message=_legal(str(gate)))
            failure.text = _legal(f"{gate}\n{verdict}")
        ElementTree.SubElement(case, "system-out").text = _value(gate.value)
    ElementTree.indent(root)
    body: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'.encode()


def _value(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return "unknown" if math.isnan(value) else f"{value + 0.0:.6g}"  # no -0


def _legal(text: str) -> str:
    """Without the characters XML has no way to hold."""
    return printable(text, keep="\n")
