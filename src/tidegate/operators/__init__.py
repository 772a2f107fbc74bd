"""Operators: pure functions, one concept per file. They start no job and hold no state.

An operator maps *relations* to relations. A relation is SQL text – a SELECT, or ``{name}`` for a DataFrame that is
put in when the text is run – so that the whole work of a batch reaches Spark as one statement: it is parsed and
analysed once, where building it call by call would cost a tiny batch more than running it."""
