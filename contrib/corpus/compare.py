#!/usr/bin/env python3
"""Compares what feedmill reads in feeds with what feedparser reads.

    compare.py PARSE-FEED [--verbose] FOLDER…

PARSE-FEED is the built example `parse-feed`. Prints a line of figures for each folder and one for all of them:
how many documents feedparser reads with n > 0 entries, in how many of those feedmill reads at least n, and in how
many of these entries title, link and date are feedparser's. With --verbose every document and entry that differs is
listed, too. The exit code is 1 when a figure of the whole misses its target.

What counts as agreement: titles as plain text (tags dropped, references decoded until none is left, blanks folded),
because feedparser gives HTML and feedmill text; links as the same URL after the normalisation every URL library does;
dates as the same second, the publication date in both or, where one has none, its update. Only what feedparser gives
is compared, and no link that it made up from an id that is none. Entries are paired by place when there are equally many, else by id, link and title.
"""

import calendar
import html
import os
import re
import subprocess
import sys
import urllib.parse

import feedparser
import json

BASE = "http://base.example/dir/feed"
TARGETS = {"documents": 96.0, "titles": 95.0, "links": 95.0, "dates": 95.0}
# What lies beside feeds in test folders.
NOT_FEEDS = (".py", ".pyc", ".md", ".txt", ".rs", ".toml", ".gz", ".z", ".expected.json", ".snap", ".png", ".jpg")
# feedparser's own test documents name their headers in a comment at the top.
HEADER = re.compile(rb"^Header:\s+([^:\s]+)\s*:(.+)$", re.MULTILINE)


def documents(folder):
    for root, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if not name.lower().endswith(NOT_FEEDS) and not name.startswith("."):
                yield os.path.join(root, name)


def stated_headers(data):
    found = {name.decode("latin-1").lower(): value.decode("latin-1").strip() for name, value in HEADER.findall(data[:4096])}
    return {name: value for name, value in found.items() if name in ("content-type", "content-location")}


def plain(text):
    text = re.sub(r"<[a-zA-Z/!][^>]*>", "", text or "")
    for _ in range(4):
        decoded = html.unescape(text)
        if decoded == text:
            break
        text = re.sub(r"<[a-zA-Z/!][^>]*>", "", decoded)
    # Controls are dropped in feedmill; a replacement character may be one or several for the same bad bytes.
    text = "".join(c for c in text if c >= " " or c in "\n\r\t")
    return " ".join(re.sub("\ufffd+", "\ufffd", text).split())


def link(text):
    try:
        parts = urllib.parse.urlsplit(urllib.parse.urljoin(BASE, (text or "").strip()))
        host = (parts.netloc or "").lower()
        host = host.removesuffix(":80" if parts.scheme == "http" else ":443" if parts.scheme == "https" else "\n")
        quoted = [urllib.parse.quote(urllib.parse.unquote(p), safe="") for p in (parts.path or "/", parts.query)]
        return (parts.scheme.lower(), host, *quoted, parts.fragment)
    except ValueError:
        return text


def date(entry):
    for key in ("published_parsed", "updated_parsed"):
        # `in` first: asking for a missing `updated` gives `published` with a warning.
        if key in entry and entry[key]:
            try:
                return calendar.timegm(entry[key])
            except (ValueError, OverflowError):
                pass
    return None


def article(entry):
    """feedparser makes a link of any id where there is no other (`urn:…`, or a bare word resolved against the feed's
    address). Such a one is only compared when the id is an address of its own."""
    url = entry.get("link")
    if not url or any(l.get("rel") == "alternate" for l in entry.get("links", [])):
        return url
    own = url.startswith(("http://", "https://")) and not url.startswith(BASE.rsplit("/", 1)[0])
    return url if own else None


def oracle(data, headers):
    headers = {"content-type": "application/xml", "content-location": BASE, **headers}
    parsed = feedparser.parse(data, response_headers=headers)
    return [
        {"guid": e.get("id"), "url": article(e), "title": e.get("title"), "date": date(e)} for e in parsed.entries
    ]


def feedmill(program, jobs):
    lines = "".join(f"{base}\t{content_type}\t{path}\n" for path, base, content_type in jobs)
    ran = subprocess.run([program], input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def pairs(theirs, ours):
    """(feedparser's entry, ours or None)."""
    if len(theirs) == len(ours):
        yield from zip(theirs, ours)
        return
    left = list(ours)
    same = [lambda a, b, k=k: a[k] and b[k] and plain(a[k]) == plain(b[k]) for k in ("guid", "url", "title")]
    for entry in theirs:
        found = next((mine for test in same for mine in left if test(entry, mine)), None)
        if found is not None:
            left.remove(found)
        yield entry, found


class Figures:
    def __init__(self):
        self.read = self.enough = self.entries = self.slowest = 0
        self.agree = {"titles": [0, 0], "links": [0, 0], "dates": [0, 0]}

    def add(self, other):
        for name in ("read", "enough", "entries"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)
        for name, (good, all_) in other.agree.items():
            self.agree[name][0] += good
            self.agree[name][1] += all_

    def shares(self):
        share = lambda good, all_: 100.0 * good / all_ if all_ else 100.0
        return {"documents": share(self.enough, self.read)} | {n: share(*ga) for n, ga in self.agree.items()}

    def line(self, name):
        share = self.shares()
        agree = ", ".join(f"{n} {share[n]:.1f} % of {self.agree[n][1]}" for n in self.agree)
        return (
            f"{name}: {self.read} documents with {self.entries} entries by feedparser; "
            f"{self.enough} ({share['documents']:.1f} %) with as many; {agree}; slowest {self.slowest / 1000:.1f} ms"
        )


def measure(program, folder, verbose):
    figures, jobs, expected = Figures(), [], []
    for path in documents(folder):
        with open(path, "rb") as file:
            data = file.read()
        headers = stated_headers(data)
        try:
            entries = oracle(data, headers)
        except Exception as error:  # The oracle's own defects are not ours to count.
            print(f"{path}: feedparser failed: {error!r}", file=sys.stderr)
            continue
        if entries:
            base = urllib.parse.urljoin(BASE, headers.get("content-location", BASE))
            jobs.append((path, base, headers.get("content-type", "").replace("\t", " ")))
            expected.append(entries)
    for (path, _, _), theirs, result in zip(jobs, expected, feedmill(program, jobs), strict=True):
        ours = result.get("entries", [])
        figures.read += 1
        figures.entries += len(theirs)
        figures.slowest = max(figures.slowest, result["microseconds"])
        if len(ours) >= len(theirs):
            figures.enough += 1
        elif verbose:
            print(f"  entries\t{path}\t{len(theirs)} != {len(ours)}\t{result.get('error', '')}")
        for entry, mine in pairs(theirs, ours):
            mine = mine or {}
            published, updated = mine.get("published_at"), mine.get("updated_at")
            at = published if published is not None else updated
            for name, given, equal, own in (
                ("titles", plain(entry["title"]), plain(entry["title"]) == plain(mine.get("title")), mine.get("title")),
                ("links", entry["url"], link(entry["url"]) == link(mine.get("url")), mine.get("url")),
                ("dates", entry["date"] is not None, entry["date"] == at, at),
            ):
                if not given:
                    continue
                figures.agree[name][1] += 1
                figures.agree[name][0] += equal
                if verbose and not equal:
                    given = entry["date"] if name == "dates" else given
                    print(f"  {name}\t{path}\t{given!r} != {own!r}")
    return figures


def main(arguments):
    verbose = "--verbose" in arguments
    program, *folders = [a for a in arguments if a != "--verbose"]
    total = Figures()
    for folder in folders:
        figures = measure(program, folder, verbose)
        print(figures.line(folder), flush=True)
        total.add(figures)
    if len(folders) > 1:
        print(total.line("all"))
    missed = [name for name, share in total.shares().items() if share < TARGETS[name]]
    if missed:
        print("below target: " + ", ".join(f"{name} (want {TARGETS[name]:.0f} %)" for name in missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
