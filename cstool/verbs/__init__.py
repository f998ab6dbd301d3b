"""The verbs, for Python and for the command line: each does what one command does, and returns what came of it.

`import cstool` offers those for Python. `asked` makes params of what a verb is given, `run` trains and evaluates,
`answer` generates and predicts, `planning` compiles and estimates, `comparison` sets sparse beside dense; `screen`,
`bars` and `notebook` show how far a verb has come, where somebody watches. Modules that take long to import are
imported inside the verbs.
"""
