"""Keys and values decoded by a schema: a column of bytes becomes a column with fields. Needs the extra ``values``.

``column.py`` is the one place where bytes are decoded; ``schemas.py`` defines schemas and finds them; ``avro.py``,
``protobuf.py`` and ``json_values.py`` know the formats.
"""
