"""FLOPs, bytes accessed, executions and modelled seconds."""
