"""The byte strings of F-13."""

from tests.support.format_bytes import unhex

A = unhex("""0000000000000064 | 00000054 | 00000003 | 02 | 14bd4a44 | 0000 | 00000002 | 0000018bcfe56800 |
0000018bcfe56807
ffffffffffffffff | ffff | ffffffff | 00000003
14 00 00 00 04 6b31 04 7631 00
10 00 0a 02 04 6b32 01 00
1c 00 0e 04 04 6b31 04 7632 02 02 68 02 78""")
"""Offsets 100..102: k1=v1, k2=null, k1=v2 with a header."""

B = unhex("""0000000000000064 | 0000004f | 00000003 | 02 | 9dffca71 | 0040 | 00000002 | 0000018bd50bc400 |
0000018bcfe56807
ffffffffffffffff | ffff | ffffffff | 00000002
16 00 f5efb252 02 04 6b32 01 00
22 00 f1efb252 04 04 6b31 04 7632 02 02 68 02 78""")
"""A after a cleaning that set a delete horizon."""

C = unhex("""0000000000000064 | 00000040 | 00000003 | 02 | 492ba817 | 0000 | 00000002 | 0000018bcfe56807 |
0000018bcfe56807
ffffffffffffffff | ffff | ffffffff | 00000001 | 1c 00 00 04 04 6b31 04 7632 02 02 68 02 78""")
"""A with only its last record."""

D = unhex("""00000000000000c8 | 00000031 | 00000003 | 02 | 5d732532 | 0000 | 00000004 | ffffffffffffffff |
0000018bcfe56864
0000000000000fa0 | 0001 | 0000000a | 00000000""")
"""An empty batch."""

E = unhex("""000000000000012c | 00000042 | 00000003 | 02 | f5fa61a7 | 0030 | 00000000 | 0000018bcfe568c8 |
0000018bcfe568c8
0000000000000fa0 | 0001 | ffffffff | 00000001 | 20 00 00 00 08 00000001 0c 000000000007 00""")
"""A commit marker."""

F1 = unhex("0000000000000032 | 00000018 | 5eaf63dc | 01 | 00 | 00000174876e8000 | 00000001 6b | 00000001 76")
"""A message of magic 1."""

F0 = unhex("0000000000000033 | 0000000f | 908204f6 | 00 | 00 | 00000001 6b | ffffffff")
"""A tombstone of magic 0."""

G = unhex("""000000000000003e | 00000052 | 49201751 | 01 | 01 | 00000174876e8003 | ffffffff | 0000003c
1f8b08000000000000006360800309f19e299d8c400663497b5e03488431
11441842e599406a267ebe3807ae8619c4480211460001e51ba648000000""")
"""A gzip wrapper of magic 1, inner offsets 0 and 2."""

EXAMPLES = {"A": A, "B": B, "C": C, "D": D, "E": E, "F1": F1, "F0": F0, "G": G}
