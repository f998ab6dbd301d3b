"""The verbs, for Python and for the command line: each does what one command does, and returns what came of it.

`import cstool` offers most of them. `asked` makes params of what a verb is given, `run` trains and evaluates, `answer`
generates and predicts, `compiling` and `estimating` ask the modelled cluster, `comparison` sets sparse beside dense;
`checkpoints`, `configs`, `data`, `stock` and `systems` are behind the commands of these names. `screen`, `bars` and
`notebook` show how far a verb has come, where somebody watches; `results` names the types of what verbs return. Modules
that take long to import are imported inside the verbs.
"""
