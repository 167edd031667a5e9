"""The verbs that choose size classes: ``fit``, and ``waste`` to look at those that there are."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyallocx._cli_base import (
    NO_DASH,
    Once,
    UsageError,
    add_switch,
    check_picture,
    check_targets,
)
from pyallocx._core import CorruptionError, TraceError
from pyallocx._flagwords import PROFILE_FORMATS, in_flags, naming_format
from pyallocx.units import counted, format_bytes, format_percent, parse_bytes, printable

if TYPE_CHECKING:
    from pyallocx.crossfit import CrossValidation
    from pyallocx.fit import Fit
    from pyallocx.league import League, Rival
    from pyallocx.profile import Profile

__all__ = ["add_verbs"]

_WEIGHTS = ("count", "peak", "end", "byte_time")
_FORMATS = ("scudo", "flat", "tcmalloc", "go", "memcached", "json")
_METHODS = ("auto", "price", "divide", "quadratic", "greedy")
# What a target needs of a table that it can take; flags go before.
_TARGETS: Mapping[str, Mapping[str, Any]] = {
    "scudo": {"header_bytes": 16, "bits": 7, "prefix": "table", "largest_bytes": 65552},
    "tcmalloc": {"align_bytes": 8, "grid": ((1024, 8), (None, 128)), "largest_bytes": 262144},
    "go": {
        "align_bytes": 8,
        "grid": ((32, 8), (1024, 16), (None, 128)),
        "largest_bytes": 32768,
    },
    # Sizes that a program asks malloc for are taken for those of values: an item adds a header.
    "memcached": {"header_bytes": 48, "align_bytes": 16, "largest_bytes": 524288},
}
_WIDTH = 96


def add_verbs(verbs: Any) -> None:
    """Add the verbs to the parsers of the command."""
    _add_fit(verbs)
    _add_waste(verbs)


def _add_profiles(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "profiles",
        nargs="+",
        metavar="PROFILE_OR_TRACE",
        help="a file of either kind, told apart by content, or shipped:NAME; one for each program",
    )
    _add(
        parser,
        "--weight",
        "|".join(_WEIGHTS),
        "what a size of a trace counts: how often it is asked for (the default), how often it "
        "lives at the peak or the end, how long; and which of a profile that has several",
        choices=_WEIGHTS,
    )
    _add(
        parser,
        "--format",
        "NAME",
        f"what all files are, instead of what their content says: {', '.join(PROFILE_FORMATS)}",
        choices=PROFILE_FORMATS,
    )


def _add(
    parser: argparse._ActionsContainer, flag: str, value: str, text: str, **options: Any
) -> None:
    parser.add_argument(flag, action=Once, metavar=value, help=text.replace("%", "%%"), **options)


def _add_fit(verbs: Any) -> None:
    parser = verbs.add_parser(
        "fit",
        help="the size classes that waste least on programs, with the proof",
        description="Find the size classes that waste least on programs, prove it, and write them "
        "in the form that an allocator takes. Sizes may be written 64KiB.",
    )
    _add_profiles(parser)
    how = parser.add_argument_group("the table")
    _add(how, "--classes", "K", "at most so many classes (default 32)")
    _add(how, "--bits", "N", "at most so many significant bits in class - header")
    _add(how, "--header", "BYTES", "added to every request (default 0; scudo: 16)")
    _add(how, "--request-align", "BYTES", "to which requests are rounded before it (default 1)")
    _add(how, "--align", "BYTES", "classes are multiples of it, a power of two (default 16)")
    _add(how, "--largest", "BYTES", "the largest class (default: the smallest that holds all)")
    _add(how, "--page-cap", "PAGES", "a request wastes no more than this (default 2; inf: no cap)")
    _add(how, "--page", "BYTES", "of such a page (default 4096)")
    _add(
        how,
        "--prefix",
        "N|table",
        "so many first steps of the alignment must be classes; table: "
        "as many as scudo's table map needs",
    )
    _add(
        how,
        "--grid",
        "END:STEP,...,STEP",
        "classes up to END are multiples of STEP, powers of two that do not fall: 1024:8,128",
    )
    _add(how, "--lsb-span", "N", "the lowest set bits of all classes are at most so far apart")
    _add(how, "--force", "A,B,...", "classes that must be there")
    _add(
        how,
        "--tail-rule",
        "gperftools",
        "count the end of spans, by this rule",
        choices=("gperftools",),
    )
    _add(
        how,
        "--method",
        "NAME",
        f"one of {', '.join(_METHODS)}; all but greedy are exact",
        choices=_METHODS,
    )
    _add(
        how,
        "--weights",
        "bytes|count|equal",
        "how several programs are combined: each with the "
        "same bytes (the default), as they are, with the same number of requests",
        choices=("bytes", "count", "equal"),
    )
    judge = parser.add_argument_group("judging it")
    add_switch(judge, "--compare-greedy", "what the greedy tool of scudo's authors would choose")
    add_switch(
        judge, "--cross-validate", "leave each program out once, and draw programs at random"
    )
    _add(
        judge,
        "--groups",
        "A,B,...",
        "a label for each program, in order: those of one label, such as runs of one program, are "
        "left out together",
    )
    output = parser.add_argument_group("output")
    _add(
        output,
        "--export",
        "FORMAT",
        f"write the table: {', '.join(_FORMATS)}; sets what the target needs where no flag does",
        choices=_FORMATS,
    )
    add_switch(
        output,
        "--compressed-lsb",
        "scudo: its compressed rule, for at most 32 classes; sets --lsb-span 3",
    )
    _add(output, "--name", "NAME", "of what is exported, an identifier")
    _add(
        output,
        "-o",
        "FILE",
        f"where to (default: standard output, and all else to standard "
        f"error); - is refused: {NO_DASH}",
        dest="output",
    )
    _add(output, "--curve", "FILE", "write the least wastage for each number of classes (csv)")
    _add(output, "--plot", "FILE", "write the picture of it: png, svg, pdf, by the suffix")
    add_switch(output, "--json", "print JSON only")
    add_switch(output, "--no-progress", "no bar on the terminal")
    parser.set_defaults(run=_fit)


def _add_waste(verbs: Any) -> None:
    parser = verbs.add_parser(
        "waste",
        help="what the size classes of allocators waste on programs",
        description="Print what tables of size classes waste on programs, in percent of the bytes "
        "that requests up to 64 KiB ask for: class less header less request.",
    )
    _add_profiles(parser)
    which = parser.add_argument_group("tables")
    _add(which, "--preset", "all|NAME,...", "of which allocators (default all)")
    _add(which, "--classes", "FILE.json", "and a size map that was saved, or exported as json")
    _add(which, "--limit", "BYTES", "larger requests are left out (default 64KiB)")
    _add(which, "--page-cap", "PAGES", "a request wastes no more pages of 4 KiB (default: no cap)")
    output = parser.add_argument_group("output")
    add_switch(output, "--json", "print JSON only")
    _add(output, "--csv", "FILE", "write the table")
    _add(output, "--plot", "FILE", "write the picture: png, svg, pdf, by the suffix")
    add_switch(output, "--no-progress", "no bar on the terminal")
    parser.set_defaults(run=_waste)


# --- what goes in


def _whole(flag: str, text: str) -> int:
    """Read a number of bytes or of things that is finite."""
    try:
        value = parse_bytes(text)
    except ValueError as exc:
        raise UsageError(f"{flag}: {exc}") from None
    if not isinstance(value, int):
        raise UsageError(f"{flag}: {text!r} is not a finite number")
    return value


def _read(options: argparse.Namespace, open_trace: Callable[..., Any]) -> list[Profile]:
    """Read the programs; each has a name of its own."""
    from pyallocx.profile import Profile, load_profile_or_trace

    progress = False if options.no_progress else None
    found: list[Profile] = []
    for spec in options.profiles:
        try:
            if spec.startswith("shipped:"):
                name, trace = open_trace(spec, "raise", progress)
                made = trace.profile(weight=options.weight or "count")
                made = Profile(made.sizes, made.counts, name=name, metadata=made.metadata)
            else:
                with naming_format():
                    made = load_profile_or_trace(
                        spec, options.weight, format=options.format, progress=progress
                    )
        except ValueError as exc:
            if isinstance(exc, TraceError):
                raise
            raise TraceError(f"{printable(spec)}: {exc}") from None
        found.append(made)
    names = [profile.name for profile in found]
    for i, (profile, spec) in enumerate(zip(found, options.profiles, strict=True)):
        if names.count(profile.name) > 1:
            name = f"{spec} ({i + 1})" if options.profiles.count(spec) > 1 else spec
            found[i] = Profile(profile.sizes, profile.counts, name=name, metadata=profile.metadata)
    return found


def _cap(text: str) -> float | None:
    try:
        cap = float(text)
    except ValueError:
        raise UsageError(f"--page-cap: {text!r} is not a number of pages") from None
    return None if cap == math.inf else cap


def _grid(text: str) -> list[tuple[int | None, int]]:
    *bounded, last = text.split(",")
    found: list[tuple[int | None, int]] = []
    for piece in bounded:
        end, colon, step = piece.partition(":")
        if not colon:
            raise UsageError(f"--grid: {piece!r} is no END:STEP")
        found.append((_whole("--grid", end), _whole("--grid", step)))
    return [*found, (None, _whole("--grid", last))]


def _constraints(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the flags ask for, and where none does what the target of the export needs.

    What depends on the programs is for `_of_target`.
    """
    wanted: dict[str, Any] = dict(_TARGETS.get(options.export, {}))
    for flag, word in (
        ("bits", "bits"),
        ("header", "header_bytes"),
        ("request_align", "request_align_bytes"),
        ("align", "align_bytes"),
        ("largest", "largest_bytes"),
        ("page", "page_bytes"),
    ):
        text = getattr(options, flag)
        if text is not None:
            wanted[word] = _whole(f"--{flag.replace('_', '-')}", text)
    if options.prefix is not None:
        table = options.prefix == "table"
        wanted["prefix"] = "table" if table else _whole("--prefix", options.prefix)
    if options.force is not None:
        wanted["forced"] = [_whole("--force", text) for text in options.force.split(",")]
    if options.grid is not None:
        wanted["grid"] = _grid(options.grid)
    elif options.align is not None and "grid" in wanted:
        # A coarser alignment goes before what the target would allow.
        align = wanted["align_bytes"]
        wanted["grid"] = [(end, max(step, align)) for end, step in wanted["grid"]]
    if options.compressed_lsb:
        if options.export != "scudo":
            raise UsageError("--compressed-lsb: it is a rule of --export scudo")
        wanted["lsb_span"] = 3
    if options.lsb_span is not None:
        wanted["lsb_span"] = _whole("--lsb-span", options.lsb_span)
    if options.page_cap is not None:
        wanted["page_cap"] = _cap(options.page_cap)
    if options.tail_rule is not None:
        wanted["tail_rule"] = options.tail_rule
    if options.method is not None:
        wanted["method"] = options.method
    return wanted


def _of_target(
    options: argparse.Namespace, wanted: dict[str, Any], programs: Sequence[Profile]
) -> None:
    """Set what a target needs and only the programs, or other flags, can tell."""
    if options.export == "scudo" and options.largest is None:
        wanted["largest_bytes"] = wanted["header_bytes"] + 65536
    if options.export == "memcached" and options.header is None:
        # Sizes of whole items have the header already.
        items = [str(p.metadata.get("sizes", "")).startswith("items") for p in programs]
        if all(items):
            wanted["header_bytes"] = 0
        elif any(items):
            raise UsageError(
                f"--export memcached: {printable(programs[items.index(True)].name)} has the sizes "
                f"of items, with their headers, {printable(programs[items.index(False)].name)} "
                "has not; give --header, or one kind"
            )


# --- fit


def _fit(options: argparse.Namespace, open_trace: Callable[..., Any]) -> int:
    from pyallocx.fit import fit

    classes = 32 if options.classes is None else _whole("--classes", options.classes)
    wanted = _constraints(options)
    if options.output is not None and options.export is None:
        raise UsageError("-o: there is nothing to write without --export")
    if options.name is not None and options.export is None:
        raise UsageError("--name: there is nothing to name without --export")
    if options.cross_validate and len(options.profiles) < 2:
        raise UsageError("--cross-validate: one program; to leave programs out takes at least two")
    if options.groups is not None:
        if not options.cross_validate:
            raise UsageError("--groups: nothing is left out without --cross-validate")
        labels = options.groups.split(",")
        if len(labels) != len(options.profiles):
            raise UsageError(f"--groups: {len(labels)} labels for {len(options.profiles)} programs")
        if len(set(labels)) < 2:
            raise UsageError("--groups: one group; to leave groups out takes at least two")
    targets = {"-o": options.output, "--curve": options.curve, "--plot": options.plot}
    _check(targets, options)
    programs = _read(options, open_trace)
    _of_target(options, wanted, programs)
    weights = options.weights or "bytes"
    one = programs[0] if len(programs) == 1 else programs
    try:
        best = fit(one, classes, weights=weights, **wanted)
    except (ValueError, TypeError) as exc:
        raise UsageError(in_flags(str(exc))) from None
    return _report(options, programs, weights, classes, wanted, best)


def _check(targets: Mapping[str, str | None], options: argparse.Namespace) -> None:
    printed = "what --json prints" if options.json else None
    if printed is None and getattr(options, "export", None) is not None and options.output is None:
        printed = "the export"
    check_targets(
        targets,
        [spec for spec in options.profiles if not spec.startswith("shipped:")],
        "profile",
        printed=printed,
    )
    if options.plot is not None:
        check_picture(options.plot)


def _report(
    options: argparse.Namespace,
    programs: list[Profile],
    weights: str,
    classes: int,
    wanted: dict[str, Any],
    best: Fit,
) -> int:
    """Judge the table, write what is asked for, and say it."""
    from pyallocx.crossfit import cross_validate
    from pyallocx.fit import fit
    from pyallocx.league import rivals

    problems: list[str] = []
    written: list[str] = []
    exported = None
    if options.export is not None:
        try:
            more = {"compressed_lsb": True} if options.compressed_lsb else {}
            exported = best.export(options.export, name=options.name, **more)
        except (ValueError, TypeError, CorruptionError) as exc:
            problems.append(f"--export: {in_flags(str(exc))}")
    others = rivals(best)
    greedy = None
    if options.compare_greedy:
        greedy = fit(
            best._profile,
            classes,
            **{k: v for k, v in wanted.items() if k != "method"},
            method="greedy",
        )
    held_out = None
    if options.cross_validate:
        try:
            held_out = cross_validate(
                programs,
                classes,
                weights=weights,
                names=[program.name for program in programs],
                groups=options.groups and options.groups.split(","),
                progress=False if options.no_progress else None,
                **wanted,
            )
        except (ValueError, TypeError) as exc:
            problems.append(f"--cross-validate: {in_flags(str(exc))}")
    _write(options, best, others, exported, written, problems)
    if options.json:
        document = _document(programs, weights, best, others, greedy, held_out)
        if options.export is not None:
            document["export"] = {"format": options.export, "text": exported}
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        # The export alone goes to standard output, so that it can go into a file or a compiler.
        aside = exported is not None and options.output is None
        lines = [
            *_lines(programs, options.profiles, weights, best, greedy, held_out),
            *_standing(best, others),
            *([] if options.cross_validate else _notes(programs)),
            *written,
        ]
        print("\n".join(lines), file=sys.stderr if aside else sys.stdout)
        if aside and exported is not None:
            print(exported, end="")
    sys.stdout.flush()
    for problem in problems:
        print(f"pyallocx: error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _write(
    options: argparse.Namespace,
    best: Fit,
    others: Sequence[Rival],
    exported: str | None,
    written: list[str],
    problems: list[str],
) -> None:
    """Write the files; what cannot be written does not keep the rest from being told."""
    from pyallocx._files import write_atomically

    def attempt(flag: str, path: str | None, noun: str, write: Callable[[str], object]) -> None:
        if path is None:
            return
        try:
            write(path)
            written.append(f"{noun}: {path}")
        except OSError as exc:
            problems.append(f"{flag}: {path}: {exc.strerror or exc}")

    if exported is not None:
        data = exported.encode()
        attempt(
            "-o",
            options.output,
            f"export ({options.export})",
            lambda path: write_atomically(path, lambda stream: stream.write(data)),
        )
    if options.curve is None and options.plot is None:
        return
    least = len({*best._wanted.forced, best._wanted.largest_bytes})
    curve = best.curve(max(256, 2 * len(best.classes), least))
    attempt("--curve", options.curve, "curve", curve.to_csv)
    if options.plot is not None:
        from pyallocx._sizeplot import plot_fit

        attempt(
            "--plot",
            options.plot,
            "picture",
            lambda path: plot_fit(best, curve, others, path=path),
        )


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _document(
    programs: Sequence[Profile],
    weights: str,
    best: Fit,
    others: Sequence[Rival],
    greedy: Fit | None,
    held_out: CrossValidation | None,
) -> dict[str, Any]:
    table = best.table
    addition = best.best_addition()
    document: dict[str, Any] = {
        "profiles": [
            {
                "name": p.name,
                "format": p.metadata.get("format"),
                "reader": p.metadata.get("reader"),
                "requests": p.total_count,
                "requested_bytes": p.total_bytes,
            }
            for p in programs
        ],
        "weights": weights if len(programs) > 1 else None,
        "classes": best.classes.tolist(),
        "wastage_bytes": best.wastage_bytes,
        "parts": best.parts,
        "percent": _finite(table.percent),
        "lower_bound_bytes": best.lower_bound_bytes,
        "gap": best.gap,
        "proved": best.proved,
        "exact": best.exact,
        "method": best.method,
        "quadrangle_condition": best.monge,
        "spare": best.spare,
        "floor_bytes": best.floor_bytes,
        "requests": table.requests,
        "requested_bytes": table.requested_bytes,
        "excluded_count": best.excluded_count,
        "excluded_bytes": best.excluded_bytes,
        "loss_bytes": [_finite(float(loss)) for loss in best.marginal()],
        "best_addition": None if addition is None else addition._asdict(),
        "constraints": best.constraints,
        "seconds": best.seconds,
        "presets": [one._asdict() | {"percent": _finite(one.percent)} for one in others],
        "held_out": held_out is not None,
    }
    if greedy is not None:
        document["greedy"] = {
            "classes": greedy.classes.tolist(),
            "wastage_bytes": greedy.wastage_bytes,
            "seconds": greedy.seconds,
        }
    if held_out is not None:
        document["cross_validation"] = {
            "in_sample_percent": _finite(held_out.in_sample_percent),
            "held_out_percent": _finite(held_out.held_out_percent),
            "low_percent": _finite(held_out.low_percent),
            "high_percent": _finite(held_out.high_percent),
            "confidence": held_out.confidence,
            "programs": [
                {k: _finite(v) if isinstance(v, float) else v for k, v in row._asdict().items()}
                for row in held_out.rows
            ],
        }
    return document


def _sources(programs: Sequence[Profile], specs: Sequence[str]) -> list[str]:
    """Say what each file is taken for: its kind is told by content, and can be mistaken.

    Of a profile that we saved that is what it was made from.
    """
    words = []
    for program, spec in zip(programs, specs, strict=True):
        if not spec.startswith("shipped:"):
            about = program.metadata
            if about.get("format") == "trace":
                # Of our own format the reader is that which made it, if any did.
                kind = f"{about.get('reader', '')} trace".strip()
            else:
                kind = f"{about.get('format')} profile"
            words.append(printable(f"{program.name}: {kind}"))
    return [_wrapped("  sources: ", ", ".join(words))] if words else []


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(f"{head}{text}", _WIDTH, subsequent_indent="  ")


def _lines(
    programs: Sequence[Profile],
    specs: Sequence[str],
    weights: str,
    best: Fit,
    greedy: Fit | None,
    held_out: CrossValidation | None,
) -> list[str]:
    """Say what was found, and why nothing is better."""
    from pyallocx._fittext import proof_text

    table = best.table
    # Counts that were scaled are nothing that anybody counted.
    noun = "request" if len(programs) == 1 or weights == "count" else "weighted request"
    requests = f"{counted(round(table.requests), noun)} of {format_bytes(table.requested_bytes)}"
    if len(programs) == 1:
        lines = [f"fitted to: {printable(programs[0].name)}, {requests}"]
    else:
        how = {"bytes": "each with the same bytes", "count": "counts as they are"}
        lines = [
            _wrapped("fitted to: ", ", ".join(printable(p.name) for p in programs)),
            f"  {how.get(weights, 'each with the same number of requests')}: {requests}",
        ]
    lines += _sources(programs, specs)
    k = len(best.classes)
    lines.append(_wrapped(f"classes ({k}): ", " ".join(map(str, best.classes.tolist()))))
    percent = f"{format_percent(table.percent)} of what is asked for"
    lines.append(f"wastage: {format_bytes(best.wastage_bytes)}, {percent}")
    words = {
        "alignment_bytes": "alignment",
        "rest_bytes": "up to the class",
        "tail_bytes": "ends of spans",
        "capped_bytes": "pages that are never touched",
    }
    parts = [f"{words[name]} {format_bytes(value)}" for name, value in best.parts.items() if value]
    if parts:
        lines.append(f"  {', '.join(parts)}")
    lines.append(
        "  with any number of classes under these constraints: at least "
        f"{format_bytes(best.floor_bytes)}"
    )
    lines.append(f"proof: {proof_text(best, _seconds(best.seconds))}")
    if best.excluded_count:
        lines.append(
            f"left out: {counted(round(best.excluded_count), noun)} of "
            f"{format_bytes(best.excluded_bytes)} above {best.classes[-1]} "
            f"{'has no class, costs 0' if best.excluded_count == 1 else 'have no class, cost 0'}"
        )
    addition = best.best_addition()
    if addition is not None:
        lines.append(
            f"one class more: {addition.class_bytes} would save "
            f"{format_bytes(addition.saved_bytes)}"
        )
    losses = best.marginal()[:-1]
    if len(losses):
        least = int(losses.argmin())
        lines.append(
            f"one class less: without {best.classes[least]} it would lose "
            f"{format_bytes(float(losses[least]))}"
        )
    if greedy is not None:
        more = greedy.wastage_bytes - best.wastage_bytes
        ratio = (
            f", {greedy.wastage_bytes / best.wastage_bytes:.3f} times" if best.wastage_bytes else ""
        )
        lines.append(
            f"greedy: {format_bytes(greedy.wastage_bytes)}, {format_bytes(more)} more{ratio}; "
            f"it took {_seconds(greedy.seconds)}, this {_seconds(best.seconds)}"
        )
    shown = [
        f"{name} {_constraint(name, value)}"
        for name, value in best.constraints.items()
        if name != "classes"
        and (value not in ([], 0, None) or name == "page_cap")
        and (name, value) != ("request_align_bytes", 1)
    ]
    lines.append(_wrapped("constraints: ", ", ".join(shown)))
    if held_out is not None:
        lines += ["", *repr(held_out).splitlines(), ""]
    return lines


def _constraint(name: str, value: Any) -> str:
    if name == "grid":
        return " then ".join(
            f"{step}" if end is None else f"{step} up to {end}" for end, step in value
        )
    return "none" if value is None else str(value)


def _seconds(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _standing(best: Fit, others: Sequence[Rival]) -> list[str]:
    if not others:
        return ["presets: none has a class for all of these requests"]
    ahead = sum(one.wastage_bytes < best.wastage_bytes - best.noise_bytes for one in others)
    lines = [
        f"presets on the same requests, by the same measure: {ahead} of {len(others)} waste less"
    ]
    # Each distinct result once: versions of an allocator often are one table.
    seen: dict[tuple[float, int], list[str]] = {}
    for one in others:
        seen.setdefault((one.wastage_bytes, one.classes), []).append(one.name)
    for (wasted, classes), names in list(seen.items())[:5]:
        share = next(one.percent for one in others if one.name == names[0])
        lines.append(
            f"  {names[0]:24} {classes:5} {'class' if classes == 1 else 'classes':7} "
            f"{format_bytes(wasted):>10} {format_percent(share):>8}"
            + (f"  also {', '.join(names[1:])}" if len(names) > 1 else "")
        )
    if len(seen) > 5:
        (wasted, _), names = list(seen.items())[-1]
        lines.append(f"  ... the last, {names[0]}, {format_bytes(wasted)}")
    return lines


def _notes(programs: Sequence[Profile]) -> list[str]:
    if len(programs) == 1:
        return [
            "warning: fitted to one program and not tested on others, which such a table can suit "
            "badly;\n  give several and --cross-validate"
        ]
    return ["note: not tested on programs that were left out: --cross-validate does that"]


# --- waste


def _waste(options: argparse.Namespace, open_trace: Callable[..., Any]) -> int:
    from pyallocx.league import league
    from pyallocx.presets import preset_names
    from pyallocx.sizemap import SizeMap

    names: Sequence[str] = preset_names()
    if options.preset not in (None, "all"):
        names = list(dict.fromkeys(options.preset.split(",")))
        unknown = [name for name in names if name not in preset_names()]
        if unknown:
            raise UsageError(
                f"--preset: no preset {unknown[0]!r}; there are {', '.join(preset_names())}"
            )
    limit = 65536 if options.limit is None else _whole("--limit", options.limit)
    targets = {"--csv": options.csv, "--plot": options.plot}
    _check(targets, options)
    if options.classes is not None:
        check_targets(targets, [options.classes], "table")
    tables = {}
    if options.classes is not None:
        try:
            table = SizeMap.load(options.classes)
        except ValueError as exc:
            raise UsageError(f"--classes: {exc}") from None
        stem = os.path.splitext(os.path.basename(options.classes))[0]
        name = printable(table.name or stem)
        tables[f"{name} (file)" if name in names else name] = table
    cap = None if options.page_cap is None else _cap(options.page_cap)
    programs = _read(options, open_trace)
    try:
        result = league(programs, names, tables=tables, limit_bytes=limit, page_cap=cap)
    except ValueError as exc:
        raise UsageError(in_flags(str(exc))) from None
    written, problems = [], []
    for flag, path, noun, write in (
        ("--csv", options.csv, "table", result.to_csv),
        ("--plot", options.plot, "picture", lambda path: result.plot(path=path)),
    ):
        if path is None:
            continue
        try:
            write(path)
            written.append(f"{noun}: {path}")
        except OSError as exc:
            problems.append(f"{flag}: {path}: {exc.strerror or exc}")
    if options.json:
        document = {
            "limit_bytes": result.limit_bytes,
            "page_cap": cap,
            "programs": list(result.programs),
            "above_limit": {
                name: above._asdict()
                for name, above in zip(result.programs, result.above, strict=True)
            },
            "rows": result.to_dicts(),
        }
        print(json.dumps(document, indent=2, allow_nan=False))
    else:
        print(
            "\n".join(
                [*_league_lines(result, cap), "", *_sources(programs, options.profiles), *written]
            )
        )
    sys.stdout.flush()
    for problem in problems:
        print(f"pyallocx: error: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _league_lines(result: League, cap: float | None) -> list[str]:
    lines = [
        f"wastage in % of the bytes that requests up to {format_bytes(result.limit_bytes)} ask "
        "for; K: classes up to there",
        *([] if cap is None else [f"a request wastes at most {cap:g} pages of 4 KiB"]),
        "* the least of a column; + without requests that are larger than the last class",
        "",
        *result.lines(),
    ]
    notes = result.notes()
    if notes:
        lines += ["", *notes]
    return [printable(line) for line in lines]
