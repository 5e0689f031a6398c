"""Decodes keys and values by a schema: a column of bytes becomes a column with fields. Needs the extra ``values``.

``column.py`` decodes bytes; ``schemas.py`` defines schemas and their sources; ``avro.py``, ``protobuf.py`` and
``json_values.py`` implement the formats.
"""
