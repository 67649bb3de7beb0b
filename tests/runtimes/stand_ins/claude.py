"""`claude -p`: the prompt as argument or on standard input; text, or one JSON object, on standard output."""

import argparse
import json
import sys

from model import think  # type: ignore[import-not-found]  # beside this script

parser = argparse.ArgumentParser(prog="claude")
parser.add_argument("-p", "--print", action="store_true")
parser.add_argument("--output-format", choices=["text", "json", "stream-json"], default="text")
parser.add_argument("--input-format", choices=["text", "stream-json"], default="text")
parser.add_argument("--append-system-prompt")
parser.add_argument("--allowedTools", nargs="+")
parser.add_argument("--disallowedTools", nargs="+")
parser.add_argument(
    "--permission-mode", choices=["default", "acceptEdits", "plan", "bypassPermissions", "dontAsk"]
)
parser.add_argument("--add-dir", nargs="+")
parser.add_argument("--model")
parser.add_argument("--max-turns", type=int)
parser.add_argument("-c", "--continue", action="store_true", dest="goes_on")
parser.add_argument("-r", "--resume")
parser.add_argument("prompt", nargs="?")
asked = parser.parse_args()
if not asked.print:
    sys.exit("claude without -p needs a terminal")
given = "" if sys.stdin.isatty() else sys.stdin.read()
prompt = "\n\n".join(part for part in (asked.prompt, given) if part)
if not prompt:
    sys.exit("Error: Input must be provided either through stdin or as a prompt argument when using --print")
answer = think(prompt)
if asked.output_format == "text":
    print(answer)
else:
    done = {"type": "result", "subtype": "success", "is_error": False, "result": answer, "session_id": "0-1"}
    print(json.dumps(done))
