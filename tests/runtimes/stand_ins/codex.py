"""`codex exec`: activity on standard error, only the last message on standard output."""

import argparse
import json
import pathlib
import sys

from model import think  # type: ignore[import-not-found]  # beside this script

parser = argparse.ArgumentParser(prog="codex")
commands = parser.add_subparsers(dest="command", required=True)
run = commands.add_parser("exec")
run.add_argument("--skip-git-repo-check", action="store_true")
run.add_argument("-s", "--sandbox", choices=["read-only", "workspace-write", "danger-full-access"])
run.add_argument("--full-auto", action="store_true")
run.add_argument("--json", action="store_true")
run.add_argument("-o", "--output-last-message")
run.add_argument("-C", "--cd")
run.add_argument("-m", "--model")
run.add_argument("-c", "--config", action="append")
run.add_argument("--add-dir", action="append")
run.add_argument("--ephemeral", action="store_true")
run.add_argument("--color", choices=["always", "never", "auto"])
run.add_argument("prompt", nargs="?")
asked = parser.parse_args()
if not asked.skip_git_repo_check and not pathlib.Path(".git").exists():
    sys.exit("Not inside a trusted directory and --skip-git-repo-check was not specified.")
given = sys.stdin.read()
own = "" if asked.prompt in (None, "-") else asked.prompt
prompt = f"{own}\n\n<stdin>\n{given}\n</stdin>" if own and given else own or given
if not prompt.strip():
    sys.exit("No prompt provided via stdin.")
print("OpenAI Codex\n--------\nuser\n" + prompt, file=sys.stderr)
answer = think(prompt)
if asked.output_last_message:
    pathlib.Path(asked.output_last_message).write_text(answer)
if asked.json:
    print(json.dumps({"type": "thread.started", "thread_id": "0-1"}))
    item = {"id": "item_0", "type": "agent_message", "text": answer}
    print(json.dumps({"type": "item.completed", "item": item}))
else:
    print(answer)
