"""Stand-ins for real command-line agents: the same flags, the same standard input and output, no account.

After the public references of `claude -p` (docs.claude.com, headless mode), `codex exec` (its non-interactive
mode) and `openclaw agent` (docs.openclaw.ai/cli/agent), as of 2026.
"""
