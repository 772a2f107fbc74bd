"""Column names in SQL text, as far as they can be told without Spark's parser.

>>> only_column("`paid at`")
'paid at'
>>> sorted(certain_columns("try_sum((amount))"))
['amount']
>>> sorted(possible_columns("status = 'captured' AND amount > 0"))
['amount', 'status']
"""

from __future__ import annotations

import re

_WORD = r"[A-Za-z_]\w*"
_LITERAL = re.compile(r"""[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.)*\"""")
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_QUOTED = re.compile(r"(\.\s*)?`((?:[^`]|``)+)`")
_ALONE = re.compile(rf"\(\s*({_WORD})\s*\)")
_LAMBDA = re.compile(rf"(?:\(([\w\s,]+)\)|({_WORD}))\s*->")
# Not after a dot (a field of a struct) or within a number (10L); not before a parenthesis (a function) or a =>.
_BARE = re.compile(rf"(?<![\w.:])({_WORD})\b(?!\s*\(|\s*=>)")

# Words that may stand in an expression without being a column: keywords, types, units of intervals.
_KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """
        all and any array as asc at between bigint binary boolean both by byte case cast char collate
        current_date current_time current_timestamp current_user date day dayofweek days dec decimal desc
        distinct div double else end escape exists false filter first float following for from hour hours ilike
        in int integer interval is last leading like long map microsecond microseconds millisecond milliseconds
        minute minutes month months not null nulls numeric or order over partition preceding quarter real
        respect ignore rlike regexp row rows second seconds short similar smallint some string struct then time
        timestamp timestamp_ltz timestamp_ntz tinyint to trailing true unbounded using varchar variant void week
        weeks when where within group year years zone
        """,
    )
)


def only_column(sql: str) -> str | None:
    """The column that the whole expression is, if it is one."""
    if match := re.fullmatch(rf"\s*(?:`((?:[^`]|``)+)`|({_WORD}))\s*", sql):
        return (match[1] or match[2]).replace("``", "`")
    return None


def certain_columns(sql: str) -> set[str]:
    """Names that can only be columns: the whole expression, in backquotes, or alone in parentheses."""
    if alone := only_column(sql):
        return {alone} if "`" in sql else {alone} - _keywords_in({alone})
    text = _without_literals(sql)
    # A qualified name, `a`.`b`, may be a struct and its field: only its first part is a column.
    names = {match[2].replace("``", "`") for match in _QUOTED.finditer(text) if match[1] is None}
    bare = {match[1] for match in _ALONE.finditer(_QUOTED.sub(" ", text))}
    return names | (bare - _keywords_in(bare) - _lambda_names(text))


def possible_columns(sql: str) -> set[str]:
    """All words that are probably columns: neither functions nor keywords nor a lambda's own names."""
    text = _without_literals(sql)
    bare = {match[1] for match in _BARE.finditer(_QUOTED.sub(" ` ", text))}
    return certain_columns(sql) | (bare - _keywords_in(bare) - _lambda_names(text))


def _without_literals(sql: str) -> str:
    return _COMMENT.sub(" ", _LITERAL.sub(" '' ", sql))


def _keywords_in(words: set[str]) -> set[str]:
    return {word for word in words if word.lower() in _KEYWORDS}


def _lambda_names(text: str) -> set[str]:
    found: set[str] = set()
    for match in _LAMBDA.finditer(text):
        found.update(re.findall(_WORD, match[1] or match[2]))
    return found
