"""`openclaw agent`: the message as an argument or in a file; the reply as text, or as one JSON object."""

import argparse
import json
import pathlib
import sys

from model import think  # type: ignore[import-not-found]  # beside this script

parser = argparse.ArgumentParser(prog="openclaw")
commands = parser.add_subparsers(dest="command", required=True)
turn = commands.add_parser("agent")
turn.add_argument("-m", "--message")
turn.add_argument("--message-file")
turn.add_argument("-t", "--to")
turn.add_argument("--session-key")
turn.add_argument("--session-id")
turn.add_argument("--agent")
turn.add_argument("--model")
turn.add_argument("--thinking")
turn.add_argument("--verbose", choices=["on", "off"])
turn.add_argument("--local", action="store_true")
turn.add_argument("--deliver", action="store_true")
turn.add_argument("--timeout", type=int, default=600)
turn.add_argument("--json", action="store_true")
asked = parser.parse_args()
if not (asked.to or asked.session_key or asked.session_id or asked.agent):
    sys.exit("Pass --to <E.164>, --session-key, --session-id or --agent to choose a session")
message = asked.message
if message is None and asked.message_file is not None:
    message = pathlib.Path(asked.message_file).read_text()
if not message:
    sys.exit("required option '-m, --message <text>' not specified")
answer = think(message)
if asked.json:
    result = {"payloads": [{"text": answer, "mediaUrl": None}], "meta": {}}
    print(json.dumps({"runId": "0-1", "status": "ok", "summary": "completed", "result": result}))
else:
    print(answer)
