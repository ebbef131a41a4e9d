"""``hloscope completion bash|zsh|fish``: a script that completes commands, options and files.

Written from the parser itself, so it never lacks an option; static, so TAB starts no Python. By
hand, since argcomplete starts Python at every TAB, and shtab writes no script for fish.
"""

from __future__ import annotations

import argparse
from contextlib import suppress

from .shared import write

NAME = "completion"
HELP = 'print a completion script for the shell: eval "$(hloscope completion bash)"'


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(arguments: argparse.Namespace) -> None:
    words = _words(arguments.parser)
    fish = arguments.shell == "fish"
    write(_fish(words) if fish else _bash(words, arguments.shell), None)


def _values(action: argparse.Action) -> list[str]:
    """The values an option may have, where there is a list; chips are those of the file now."""
    if action.choices:
        return [str(c) for c in action.choices]
    if "--hardware" in action.option_strings:
        from ...hardware import HardwareError, load

        with suppress(HardwareError):
            return list(load())
    return []


def _words(
    parser: argparse.ArgumentParser,
) -> dict[str, tuple[str, list[str], dict[str, list[str]]]]:
    """Command → its help, its options and fixed arguments, and values of options."""
    found = {}
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {a.dest: a.help or "" for a in action._choices_actions}
        for name, command in action.choices.items():
            options: list[str] = []
            values: dict[str, list[str]] = {}
            for a in command._actions:
                options += [o for o in a.option_strings if o.startswith("--")]
                if not a.option_strings and a.choices:
                    options += map(str, a.choices)
                values |= {o: v for o in a.option_strings if o[:2] == "--" and (v := _values(a))}
            found[name] = (helps.get(name, ""), options, values)
    return found


def _bash(words: dict[str, tuple[str, list[str], dict[str, list[str]]]], shell: str) -> str:
    cases = "\n".join(f'    {n}) words="{" ".join(o)}" ;;' for n, (_, o, _) in words.items())
    every = {option: v for _, _, values in words.values() for option, v in values.items()}
    after = "\n".join(f'    {option}) words="{" ".join(v)}" ;;' for option, v in every.items())
    start = "autoload -U +X bashcompinit && bashcompinit\n" if shell == "zsh" else ""
    return f"""{start}_hloscope() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" words
  case "${{COMP_WORDS[1]}}" in
{cases}
    *) words="{" ".join(words["open"][1])}" ;;
  esac
  case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{after}
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(words)} --help --version"; fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -o bashdefault -F _hloscope hloscope"""


def _fish(words: dict[str, tuple[str, list[str], dict[str, list[str]]]]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = []
    for name, (about, options, values) in words.items():
        condition = "-n __fish_use_subcommand"
        lines.append(f"complete -c hloscope {condition} -a {name} -d {quoted(about)}")
        inside = f"-n {quoted(f'__fish_seen_subcommand_from {name}')}"
        for option in options:
            what = f"-l {option[2:]}" if option.startswith("--") else f"-a {option}"
            if option in values:
                what += f" -x -a {quoted(' '.join(values[option]))}"
            lines.append(f"complete -c hloscope {inside} {what}")
    return "\n".join(lines)
