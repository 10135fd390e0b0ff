"""Values that models write in other ways than JSON's."""

from __future__ import annotations

import ast
import json

_MAX_LITERAL = 64 * 1024  # characters that Python's own parser is asked to read


def json_of(written: str) -> str:
    """The JSON text of a value as JSON or Python write it; of anything else, a string that holds it."""
    try:
        json.loads(written)
        return written
    except (ValueError, RecursionError):
        pass
    try:
        if len(written) <= _MAX_LITERAL:
            return json.dumps(ast.literal_eval(written), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        pass
    return json.dumps(written, ensure_ascii=False)
