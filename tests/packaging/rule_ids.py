"""The form of a rule's id."""

from __future__ import annotations

import re

FAMILIES = "A|C|D|F|H|I|K|LT|OP|R|R87|R192|R280|R534|S|T|U|VERIFY|X"
ID = re.compile(rf"(?<![\w.-])(?:{FAMILIES})-\d+(?:\.\d+|[a-z](?![\w]))?(?![\w-])")
