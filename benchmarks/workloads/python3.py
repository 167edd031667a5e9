"""A small text-processing job with the standard library: build, encode, decode, search, count."""

import collections
import json
import re

state = 1


def below(n):
    """A whole number from 0 to n - 1, the same in every run (and cheaper to import than random)."""
    global state
    state = state * 48271 % 0x7FFFFFFF
    return state % n


syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "un", "ers")]
words = ["".join(syllables[below(96)] for _ in range(1 + below(5))) for _ in range(300)]


def document(depth):
    """A random JSON value, nested at most `depth` deep."""
    if depth == 0:
        text = " ".join(words[below(300)] for _ in range(1 + below(8)))
        return [below(10**6) / 7, text, None, below(10**9)][below(4)]
    if below(2):
        return [document(depth - 1) for _ in range(1 + below(6))]
    return {words[below(300)]: document(depth - 1) for _ in range(1 + below(6))}


index = collections.defaultdict(set)
for number in range(4):
    batch = [document(1 + below(3)) for _ in range(2 + number)]
    text = json.dumps(batch, indent=1)
    assert json.loads(text) == batch
    found = re.findall(r"[a-z]{3,}", text)
    for word in found:
        index[word[:2]].add(number)
    common = collections.Counter(found).most_common(20)
    page = "\n".join(f"{word:<24}{count:>6}" for word, count in common)
    print(len(text), len(page))
print(len(index))
