"""What a secret looks like: by its own letters, or by the text around it.

Every regular expression here takes linear time for any input: an unbounded run is possessive, and what
follows it either cannot fail or fails once for the whole run.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import msgspec

# A regex search holds the GIL; between two windows of a long line other threads can run.
_WINDOW = 64 * 1024
# How far a secret may reach into the next window and still be found; a match is then taken to its end.
_REACH = 8 * 1024

_KINDS_OF_KEY = "api access account auth aws encryption master private secret shared signing subscription"
# Page tokens, fences, and the vocabulary of language models: tokens that are not secrets.
_ORDINARY_TOKENS = "page next starting continuation fence claim input output eos bos pad unk sep cls stop"


def _behind(words: str, look: str, length: int) -> list[str]:
    """Lookbehinds for one of the words before the last `length` letters, with or without a sign between."""
    return [f"(?{look}(?i:{word}){sign}.{{{length}}})" for word in words.split() for sign in ("", "[-_. ]")]


# What follows the prefix of one of Holdfast's own ids (`core/ids.py`): a word in it is there by chance.
OWN_ID = "(?<=[a-z]_)[0-7][0-9a-hjkmnp-tv-z]{25}(?![0-9A-Za-z])"
# In the text itself, in JSON, and in JSON up to four times inside the strings of other JSON.
_QUOTE = r"""\\{0,15}["'`]"""
# After `key`: a lookbehind for the words that make it a secret.
OF_A_KIND = f"(?:{'|'.join(_behind(_KINDS_OF_KEY, '<=', 3))})"
# curl's flags for a user and a password, without their first dash; flags without a value may precede them.
CURL_FLAG = "(?:[afgGiIjJklLMnNOpqRsSvVZ]{0,10}+[uU]|-(?:proxy-)?user(?![A-Za-z-]))"
# A character set at the beginning lets the search skip a letter without an attempt, and one at the beginning
# of each branch lets it skip the branch. `pass` and `pw` are also words: the group `bare` is set if neither a
# sign before them nor quotes around them mark them as names.
_NAME = rf"""[pPsScCaAkKtT](?:
      [aAwW](?<=[pP].)(?P<password>(?<=[aA])(?i:ss(?:word|wd|phrase)s?) | (?<=[wW])[dD]
        | (?:(?<=[_-]..) | (?<=["'`]..)(?=(?:[sS][sS])?[0-9]{{0,2}}{_QUOTE})
            | (?P<bare>(?<![A-Za-z0-9]..)|(?<=\\[nrt]..)))
          (?:(?<=[aA])[sS][sS]|(?<=[wW]))(?![A-Za-z])(?(bare)(?![0-9]{{0,2}}{_QUOTE})))
    | [eE](?:(?<=[sS].)(?<!:..)(?i:crets?) | (?<=[kK].)[yY]{OF_A_KIND}[sS]?)
    | [rR](?<=[cC].)(?i:edentials?)
    | [uU](?<=[aA].)(?P<header>(?i:thorization))
    | [oO](?<=[tT].)(?P<token>(?i:ken){"".join(_behind(_ORDINARY_TOKENS, "<!", 5))}) )[0-9]{{0,2}}"""
_END_OF_NAME = rf"""(?:{_QUOTE}\]?)?(?::[ ]?\w{{1,20}}(?=[ ]?=))?"""
_SEPARATOR = r"[ \t]{0,4}(?:=>|:=|!?={1,3}|:)[ \t]{0,4}"
_VALUE = r"""(?:(?P<quote>["'`])|(?P<escaped>\\++["'`]))?
    (?(header)(?P<scheme>(?i:bearer|basic|token|digest)[ ]{1,4})?)
    (?P<secret>(?(quote)(?![\s),;:\]}])(?>(?:\\.|(?!(?P=quote))[^\\\n])+)
        |(?(escaped)[^\\\n"'`]++|[^\s"'`,;&<>()\[\]{}|\\]{4,}+)))"""

# Compiled on first use.
_ATTRIBUTE = r"(?a)[A-Za-z_]\w*+(?>(?:\.[A-Za-z_]\w*+)+)"
_WORD = r"[A-Z]?[a-z]{1,15}[.:]?"
_RANDOM = r"(?=[^A-Za-z]*+[A-Za-z])[^0-9!@#$%^*+~]*+[0-9!@#$%^*+~]"
_PLAIN = r"""(?xa)
    \[redacted:[a-z-]++\] | \s*+ | [.~]{0,2}(?>(?:/[A-Z]?[a-z0-9_.-]++)+)/? | %[sdr] | %\(\w++\)s | %\w++%
    | \$\{\w++\} | \$\([\w\ ./-]++\) | \$[A-Za-z_]++ | \$[A-Z_][A-Z0-9_]*+ | <[\w\ -]++> | [*x.]{3,}+
    | \{{1,2}\ ?[\w.]++\ ?\}{1,2} | (?i:true|false|yes|no|none|null|nil|undefined|str|string|bytes
    |required|optional|bearer|basic|include|omit|same-origin)"""
# A line of YAML that sets a password to a word, as opposed to prose, to a type and to a remark about it.
_SETTING = r"[ \t]{0,40}(?:[+>-][ \t]{0,40})?[\"']?[\w.-]{0,40}"
_SETTING_WORD = r"""(?x)(?!(?i:any|boolean|bool|char|default|disabled|empty|enabled|expired|hidden|incorrect
    |integer|invalid|masked|missing|never|number|object|password|pending|secret|text|unchanged|unknown|unset|varchar
    |wrong)\Z) [A-Z]?[a-z]{3,}+(?>(?:-[a-z]++)*)"""
_SETTING_END = r"[ \t\r]{0,40}(?:\n|\#|\Z)"
# The same in a string of JSON: there a quote begins the first line and ends the last.
_LINE_BREAK = r"(\n|\\{1,15}n|[\[{:,\ ]\\{0,15}\")"
_ESCAPED_END = r"[ \t]{0,40}\\{1,15}[nr]"
_QUOTED_END = r"[ \t]{0,40}\\{0,15}\""
# A word after a flag in a sentence about the flag.
_FLAG_WORD = r"""(?x)(?!(?i:after|again|also|arguments?|because|before|cannot|could|does|either|else|even
    |every|fails?|first|flags?|from|given|gives|have|here|instead|into|itself|just|like|means|might|must|needs?|never
    |only|options?|parameter|password|prompts?|reads?|sets?|should|since|still|takes?|text|than|that|their|them|then
    |there|these|they|this|those|unless|until|used|uses|using|values?|were|what|when|where|which|while|will|with
    |without|works?|would|your)\Z) [A-Za-z]{4,}+"""
_KEY_NAME = rf"(?:{_NAME}|(?i:cookies?))\Z"
_VARIABLE = rf"{_NAME}\Z"
_MAX_SETTING = 130
_MAX_COMMAND = 1000
# A shorter token in quotes may be a word, and a shorter number after a password's name may be a count.
_LONG_TOKEN = 16
_LONG_NUMBER = 6
# Between two arguments of a command: in a shell line, and in a JSON list.
_IN_A_LIST = r"""\\{0,15}["'],[ ]{0,4}\\{0,15}["']"""
_GAP = rf"(?:[ \t]{{1,4}}|{_IN_A_LIST})"
# The beginning of the value of a flag, which may directly follow it.
_BEGIN_OF_ARGUMENT = rf"""(?:(?P<list>{_IN_A_LIST})
    | [ \t=]{{0,4}}(?:\\\n[ \t]{{0,40}})?(?:\\{{0,15}}(?P<quote>["']))?)"""
_ARGUMENT = r"""(?(list)[^"'\\\n]++|(?(quote)(?>(?:(?!(?P=quote))[^\\\n])+)|[^\s"'\\|;&<>()]++))"""
# The lines of YAML below a name, also in a string of JSON.
_REST_OF_LINE = r'(?(escape)[^\n\\"]*+|[^\n]*+)'


# Compiled on first use and cached here, because the cache of `re` is small.
@functools.cache
def compiled(source: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(source, flags)


def key_name(key: str) -> re.Match[str] | None:
    """A match if the value of this key is a secret; the group `token` is set if it is a token."""
    found = compiled(_KEY_NAME, re.ASCII | re.VERBOSE).search(key[-40:])
    if found is None or compiled(rf"{OWN_ID}\Z").search(key[-40:]) is not None:
        return None
    # A boarding pass is not a password.
    return None if found["bare"] is not None and len(found[0]) != len(key) else found


def is_plain(value: str) -> bool:
    """Whether the value is not a secret, whatever its name: a placeholder, a variable, a path, a remark."""
    return compiled(_PLAIN).fullmatch(value) is not None


def _is_variable(value: str) -> bool:
    found = compiled(_VARIABLE, re.ASCII | re.VERBOSE).search(value[-40:])
    return found is not None and found["bare"] is None


def _is_secret(match: re.Match[str]) -> bool:
    """Distinguishes a value from an expression: `password=hunter2` from `token = next(tokens)`."""
    value = match["secret"]
    if value is None or is_plain(value):
        return False
    groups = match.re.groupindex
    if "user" in groups:
        return _is_for_curl(match)
    if "token" not in groups:
        return True
    if "indent" in groups:
        return _is_below(match)
    if "separator" not in groups:
        return _is_in_quotes(match)
    if match["scheme"]:
        return compiled(_WORD).fullmatch(value) is None
    if match["quote"] or match["escaped"]:
        return _is_in_quotes(match)
    following = match.string[match.end() : match.end() + 1]
    if following in {"(", "["} or _is_variable(value):
        return False
    separator = match["separator"].strip()
    if match["separator"] == "=" and following not in {")", ","}:
        return (match["token"] is None and match["bare"] is None) or not value.isdigit()
    if match["bare"] is not None and separator == ":":
        # `PASS: test_1` is a line of a report.
        return match[0][0].islower() and _is_random(value) and _is_whole_line(match)
    if _is_random(value):
        return compiled(_ATTRIBUTE).fullmatch(value) is None
    if match["password"] is None or separator not in {"", ":"}:
        return False
    if value.isdigit():
        return len(value) >= _LONG_NUMBER or _is_whole_line(match)
    if separator == "":
        return match["separator"] == " " and compiled(_FLAG_WORD).fullmatch(value) is not None
    return compiled(_SETTING_WORD).fullmatch(value) is not None and _is_whole_line(match)


def _is_random(value: str) -> bool:
    return compiled(_RANDOM).match(value) is not None


def _is_in_quotes(match: re.Match[str]) -> bool:
    """Whether a quoted value is a secret: some tokens and passes are not."""
    value = match["secret"]
    if match["bare"] is not None:
        return not value.isdigit()
    return match["token"] is None or len(value) >= _LONG_TOKEN or _is_random(value)


def _is_whole_line(match: re.Match[str]) -> bool:
    """Whether the match is the whole of its line, as in YAML."""
    before, line_break = _line_before(match)
    if before is None:
        return False
    ends = [_SETTING_END, _ESCAPED_END] + [_QUOTED_END] * ("n" in line_break)
    if '"' in line_break:
        ends = [_ESCAPED_END]
    return any(compiled(end).match(match.string, match.end()) for end in ends)


def _line_before(match: re.Match[str]) -> tuple[str | None, str]:
    """The text before the match in its line (None if it is not a setting), and the line break before it."""
    text, begin = match.string, match.start()
    *_, line_break, before = ["", *compiled(_LINE_BREAK).split(text[max(0, begin - _MAX_SETTING) : begin])]
    is_setting = len(before) < _MAX_SETTING and compiled(_SETTING).fullmatch(before) is not None
    return before if is_setting else None, line_break


def _is_below(match: re.Match[str]) -> bool:
    """Whether the lines below a name are its value: they are indented and hold nothing else."""
    before, _ = _line_before(match)
    if before is None or len(match["indent"]) <= len(before) - len(before.lstrip(" \t")):
        return False
    value = match["secret"].strip("\"'")
    if match["block"] is not None or match["password"] is None:
        return match["block"] is not None
    is_word = compiled(_SETTING_WORD).fullmatch(value) is not None
    return is_word or value.isdigit() or _is_random(value)


def _is_for_curl(match: re.Match[str]) -> bool:
    """Whether the flag belongs to curl, whose command may continue over lines that end in a backslash."""
    begin = match.start()
    _, curl, flags = match.string[max(0, begin - _MAX_COMMAND) : begin].rpartition("curl")
    return bool(curl) and compiled(r"(?<!\\)\n").search(flags) is None


class SecretPattern(msgspec.Struct, frozen=True):
    """One kind of secret: the group `secret` of the regex is replaced."""

    name: str
    finds: str
    source: str
    flags: int
    # Text without any of these cannot match the regex. Checking them takes a fiftieth of its time.
    needs: tuple[str, ...] = ()
    spans_lines: bool = False

    @property
    def regex(self) -> re.Pattern[str]:
        # Compiled when the first hint is found: most commands never see one.
        return compiled(self.source, self.flags)

    def may_find(self, text: str) -> bool:
        return not self.needs or any(one in text for one in self.needs)

    def redact(self, text: str) -> str:
        if len(text) <= _WINDOW:
            return self.regex.sub(self._replacement, text)
        return _substitute(self.regex, self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        if not _is_secret(match):
            return match[0]
        start, end = match.span("secret")
        return f"{match.string[match.start() : start]}[redacted:{self.name}]{match.string[end : match.end()]}"


def _substitute(regex: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str) -> str:
    """Like `regex.sub`, in windows."""
    parts: list[str] = []
    done = at = 0
    while at < len(text):
        found = regex.search(text, at, at + _WINDOW + _REACH)
        if found is None or found.start() >= at + _WINDOW:
            at += _WINDOW
            continue
        begin = found.start()
        # Match again without the window's end, which is not the end of the text.
        whole = found if found.end() < at + _WINDOW else regex.match(text, begin)
        if whole is None:
            at = begin + 1
            continue
        parts += text[done:begin], replacement(whole)
        done = at = whole.end()
    return "".join((*parts, text[done:]))


# Escapes of JSON, Python, shells and URLs, and the ends of terminal colours. Each has a fixed length, as a
# lookbehind requires.
_ESCAPES = (
    r"\\[abefnrtv0]", r"\\u[0-9A-Fa-f]{4}", r"\\x[0-9A-Fa-f]{2}", r"\\[0-7]{3}", "%[0-9A-Fa-f]{2}",
    r"\[m", r"\[[0-9]m", r"\[[0-9]{2}m", "[0-9];[0-9]m", "[0-9];[0-9]{2}m", "[0-9];[0-9]{3}m",
)  # fmt: skip


def _shape(name: str, finds: str, body: str, *, needs: str, prefix: str = "") -> SecretPattern:
    """A secret known by its own letters; a short prefix must not be the end of a longer word."""
    # The prefix comes before its lookbehind, because a search is fast only with a leading literal.
    # The letters of an escape such as \n or %20 do not belong to the word that follows it.
    escapes = "|".join(f"(?<={escape}{prefix})" for escape in _ESCAPES)
    begin = rf"{prefix}(?:(?<![A-Za-z0-9]{prefix})|{escapes})" if prefix else ""
    # Match the rest of the word, too, so that a second redaction does not find a new beginning there.
    return SecretPattern(
        name, finds, rf"(?P<secret>{begin}{body}[A-Za-z0-9_-]*+)", re.ASCII, tuple(needs.split())
    )


def _context(
    name: str, finds: str, regex: str, *, needs: str = "", spans_lines: bool = False
) -> SecretPattern:
    """A secret known by the text around it."""
    return SecretPattern(name, finds, regex, re.ASCII | re.VERBOSE, tuple(needs.split(" ")), spans_lines)


# In this order: patterns that span lines, secrets with a shape of their own, secrets known by their context.
PATTERNS: tuple[SecretPattern, ...] = (
    _context(
        "pem",
        "Private key blocks in PEM or PGP armour, whole or cut short",
        r"""(?P<secret>-----BEGIN\ [A-Z0-9 ]{0,40}PRIVATE\ KEY(?:\ BLOCK)?-----(?:
            (?>(?:[^-]++|-(?!----))*)-----END\ [A-Z0-9 ]{0,60}-----
            | (?>(?:(?:\s|\\{1,3}[nr]){0,8}(?:[A-Za-z0-9+/=]{16,}+|[A-Za-z-]{1,24}:\ [^\n\\]{0,100}+))*)
              (?:(?:\s|\\{1,3}[nr]){0,8}[A-Za-z0-9+/=]{1,15}+(?!\ ))?))""",
        needs="-----BEGIN",
        spans_lines=True,
    ),
    _context(
        "curl",
        "The password of curl's -u and --user; the user stays",
        rf"""-(?<![\w-]-)(?P<user>{CURL_FLAG}){_BEGIN_OF_ARGUMENT}[^\x00-\x20:"'\\]{{0,64}}:
            (?(list)|(?(quote)|(?P<inner>\\{{0,15}}["'])?))
            (?P<secret>(?!//)(?(inner)[^"'\\\n]++|{_ARGUMENT}))""",
        needs="curl",
        spans_lines=True,
    ),
    _context(
        "yaml",
        "What stands in the lines below a name such as password: in YAML",
        rf"""{_NAME}["']?:[ \t]{{0,4}}(?P<block>[|>][0-9+-]{{0,2}})?[ \t]{{0,40}}
            (?:\r?\n|(?P<escape>\\{{1,15}})n)(?P<indent>[ \t]{{1,80}}+)
            (?P<secret>(?![\s\#-])(?(block){_REST_OF_LINE}
                (?>(?:(?(escape)\\{{1,15}}n|\n{{1,3}})(?P=indent){_REST_OF_LINE})*)
                | (?>(?:[^\s\\":]++|:(?=\S))+)(?=[ \t\r]{{0,40}}(?:[\n\\"]|\Z))))""",
        needs="\n \\n",
        spans_lines=True,
    ),
    _context(
        "netrc",
        "The password in a line of .netrc",
        r"""(?:machine\s{1,40}+\S{1,255}+|default)\s{1,40}+login\s{1,40}+\S{1,255}+\s{1,40}+
            (?:account\s{1,40}+\S{1,255}+\s{1,40}+)?password\s{1,40}+(?P<secret>[^\s"'\\]++)""",
        needs="login",
        spans_lines=True,
    ),
    _context(
        "jwt",
        "JSON Web Tokens: base64url parts, the first beginning with eyJ",
        r"(?P<secret>eyJ[\w=-]{8,}+\.[\w=-]{8,}+(?:\.[\w+/=-]++){0,3})|eyJ[\w=-]*+",
        needs="eyJ",
    ),
    _shape(
        "aws",
        "AWS access key ids",
        r"A(?:3T[A-Z0-9]|BIA|CCA|KIA|SIA)[0-9A-Z]{16}",
        needs="A3T ABIA ACCA AKIA ASIA",
    ),
    _shape(
        "github",
        "GitHub: ghp_ github_pat_ and family",
        r"g(?:h[pousr]_\w{36}|ithub_pat_\w{22})",
        needs="ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
    ),
    _shape(
        "gitlab",
        "GitLab: glpat- and family",
        r"gl(?:pat|[dfr]t|cbt|imt|ptt|oas|soat|agent)-[\w-]{20}",
        needs="glpat- gldt- glft- glrt- glcbt- glimt- glptt- gloas- glsoat- glagent-",
    ),
    _shape(
        "slack",
        "Slack: xoxb- xoxp- xapp- and others",
        r"[A-Za-z0-9-]{16}",
        prefix="x(?:ox[a-z]|app)-",
        needs="xox xapp-",
    ),
    _shape("discord", "Discord bot tokens", r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}", needs="."),
    _shape(
        "telegram",
        "Telegram bot tokens; the bot's number stays",
        r"AA(?<=[0-9]{8}:AA)[\w-]{33}",
        needs=":AA",
    ),
    _shape("anthropic", "Anthropic: sk-ant-", r"ant-[\w-]{16}", prefix="sk-", needs="sk-ant-"),
    _shape(
        "openai", "OpenAI: sk- sk-proj-", r"(?=[a-z_-]{0,64}[A-Z0-9])[\w-]{20}", prefix="sk-", needs="sk-"
    ),
    _shape(
        "google",
        "Google: AIza ya29. GOCSPX-",
        r"(?:AIza[\w-]{35}|ya29\.[\w-]{20}|GOCSPX-[\w-]{20})",
        needs="AIza ya29. GOCSPX-",
    ),
    _shape(
        "stripe",
        "Stripe: sk_live_ rk_live_ whsec_",
        r"(?:[rs]k_(?:live|test)|whsec)_[A-Za-z0-9]{16}",
        needs="k_live_ k_test_ whsec_",
    ),
    _shape(
        "twilio", "Twilio account ids and keys: AC… SK…", r"[0-9a-z]{32}", prefix="(?:AC|SK)", needs="AC SK"
    ),
    _shape("sendgrid", "SendGrid: SG.", r"[\w-]{16,64}\.[\w-]{16}", prefix=r"SG\.", needs="SG."),
    _shape("mailgun", "Mailgun: key-", r"(?<![_-]key-)[0-9a-z]{32}", prefix="key-", needs="key-"),
    _shape("npm", "npm: npm_", r"[A-Za-z0-9]{30}", prefix="npm_", needs="npm_"),
    _shape("pypi", "PyPI: pypi-", r"AgE[\w-]{50}", prefix="pypi-", needs="pypi-AgE"),
    _shape("gateway", "The gateway's own: hf_gw_", r"gw_[\w-]{16}", prefix="hf_", needs="hf_gw_"),
    _shape(
        "outer-key",
        "The key that a ledger's data key is wrapped with: hf_key_",
        r"key_[\w-]{16}",
        prefix="hf_",
        needs="hf_key_",
    ),
    _shape("huggingface", "Hugging Face: hf_", r"[A-Za-z0-9]{30}", prefix="hf_", needs="hf_"),
    _shape(
        "age", "age identities: AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{40}", needs="AGE-SECRET-KEY-1"
    ),
    _shape("vault", "Vault: hvs. hvb. hvr.", r"[\w-]{20}", prefix=r"hv[bsr]\.", needs="hvs. hvb. hvr."),
    _shape("groq", "Groq: gsk_", r"[A-Za-z0-9]{32}", prefix="gsk_", needs="gsk_"),
    _shape("xai", "xAI: xai-", r"[A-Za-z0-9]{32}", prefix="xai-", needs="xai-"),
    _shape("replicate", "Replicate: r8_", r"[A-Za-z0-9]{32}", prefix="r8_", needs="r8_"),
    _shape("databricks", "Databricks: dapi", r"[0-9A-Fa-f]{32}", prefix="(?:dapi|DAPI)", needs="dapi DAPI"),
    _shape(
        "shopify",
        "Shopify: shpat_ shpss_ shpca_ shppa_",
        r"[0-9A-Fa-f]{32}",
        prefix="shp(?:at|ss|ca|pa)_",
        needs="shpat_ shpss_ shpca_ shppa_",
    ),
    _shape(
        "tailscale",
        "Tailscale: tskey-",
        r"(?=[a-z-]{0,32}[A-Z0-9])[\w-]{16}",
        prefix="tskey-",
        needs="tskey-",
    ),
    _shape(
        "digitalocean",
        "DigitalOcean: dop_v1_ doo_v1_ dor_v1_",
        r"[0-9a-f]{32}",
        prefix="do[opr]_v1_",
        needs="dop_v1_ doo_v1_ dor_v1_",
    ),
    _shape("notion", "Notion: secret_ ntn_", r"(?:secret|ntn)_[A-Za-z0-9]{40}", needs="secret_ ntn_"),
    _shape(
        "linear", "Linear: lin_api_ lin_oauth_", r"(?:api|oauth)_[A-Za-z0-9]{30}", prefix="lin_", needs="lin_"
    ),
    # After the others: a secret after it that was replaced already no longer continues its word.
    _shape(
        "vault-old",
        "Vault before 1.10: s. and 24 letters, of both cases and with a digit",
        r"(?<![_.]s\.)(?=[a-z0-9]{0,23}[A-Z])(?=[A-Z0-9]{0,23}[a-z])(?=[A-Za-z]{0,23}[0-9])[A-Za-z0-9]{24}(?![\w(.-])",
        prefix=r"s\.",
        needs="s.",
    ),
    _context(
        "azure",
        "Azure: AccountKey=",
        r"AccountKey=(?P<secret>[A-Za-z0-9+/]{40,}+={0,2})",
        needs="AccountKey=",
    ),
    _context(
        "sas",
        "The signature of a shared access link of Azure: sig=",
        r"[?&;]sig=(?P<secret>[A-Za-z0-9%+/_-]{20,}+={0,2})",
        needs="sig=",
    ),
    _context(
        "url-key",
        "The key in the query of a URL, when it holds a letter and a digit: ?key= ?code=",
        r"""[?&](?:key=|code=(?=[\w.~%/+-]{16}))
            (?P<secret>(?=[0-9._~%/+-]{0,64}[A-Za-z])(?=[A-Za-z._~%/+-]{0,64}[0-9])[\w.~%/+-]{12,}+={0,2})""",
        needs="?key= &key= ?code= &code=",
    ),
    _context(
        "sentry",
        "The key of a Sentry DSN; the host stays",
        r"://(?P<secret>[0-9a-f]{32}(?::[0-9a-f]{32})?)@(?=[\w.:-]{1,100}/[0-9]|[\w.-]{0,100}sentry)",
        needs="://",
    ),
    _context(
        "url-user",
        "A token in place of the user in a URL: at least 20 letters and digits of both kinds",
        r"""://(?P<secret>(?=[A-Za-z_]{0,64}[0-9])(?=[0-9_]{0,64}[A-Za-z])\w{20,}+)
            (?=@|:[^\s/@"'<>\\]{0,255}@)""",
        needs="://",
    ),
    _context(
        "aws-assignment",
        "AWS secret keys given to a name such as aws_secret_access_key",
        rf"""[aA](?i:ws[-_ ]?(?:secret[-_ ]?)?(?:access[-_ ]?)?key){_END_OF_NAME}{_SEPARATOR}
            (?:{_QUOTE})?(?P<secret>[A-Za-z0-9/+]{{40}}(?![A-Za-z0-9/+=]))""",
    ),
    _context(
        "webhook",
        "The path of a Slack or Discord webhook",
        r"""(?:hooks\.slack\.com/(?:services|workflows|triggers)|discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks)
            /(?P<secret>[\w/-]{16,}+)""",
        needs="hooks.slack.com/ .com/api/",
    ),
    _context(
        "url",
        "The password in a URL; user and host stay",
        r"""://(?>(?:\[redacted:[a-z-]++\]|[^\s/:@"'<>\\\[]++)*):
            (?P<secret>(?>(?:[^\s/@"'<>\\]++|@(?=[^\s/@"'<>\\]*+@))+))@""",
        needs="://",
    ),
    _context(
        "cookie-line",
        "What follows Cookie: or Set-Cookie:",
        rf"""[cC](?i:ookie)(?:{_QUOTE})?[ \t]?:[ \t]{{0,4}}(?:{_QUOTE})?
            (?P<secret>[\w.-]{{1,64}}=[^\n\r"'`\\]++)""",
    ),
    _context(
        "bearer",
        "What follows Bearer, when it holds a digit",
        r"B(?:earer|EARER)[ ]{1,4}(?P<secret>(?=[A-Za-z._~+/=-]{0,256}[0-9])[A-Za-z0-9._~+/=-]{8,}+)",
        needs="Bearer BEARER",
    ),
    _context(
        "sshpass",
        "The password that sshpass is given with -p",
        rf"""sshpass(?:{_GAP}-[vVP][^\s"'\\,]{{0,20}}){{0,4}}{_GAP}-p{_BEGIN_OF_ARGUMENT}(?P<secret>{_ARGUMENT})""",
        needs="sshpass",
    ),
    _context(
        "command",
        "The password that mysql, docker login and podman login are given with -p",
        rf"""(?:mysql[a-z]{{0,6}}(?={_GAP}-) | (?:docker|podman){_GAP}(?P<login>login))
            (?:{_GAP}(?!-p)[^\s"'\\,;|&]{{1,200}}+){{0,12}}{_GAP}-p
            (?(login){_BEGIN_OF_ARGUMENT}|(?:(?<=[ \t]-p)\\{{0,15}}(?P<quoted>["']))?)
            (?P<secret>(?(quoted)(?>(?:(?!(?P=quoted))[^\\\n])+)|{_ARGUMENT}))""",
        needs="mysql docker podman",
    ),
    _context(
        "xml",
        "The text of an XML element such as <password>",
        rf"""<(?P<tag>[\w:.-]{{0,40}}?{_NAME})(?:[ \t][^<>\n]{{0,200}}+)?>
            (?P<secret>[^<>\n]{{1,4000}}+)<\\{{0,15}}/(?P=tag)""",
        needs="</ \\/",
    ),
    _context(
        "flag",
        "The value of a flag such as --password or --api-key",
        rf"--(?<![\w-]--)[\w-]{{0,24}}?{_NAME}(?P<separator>[ \t]{{1,4}}){_VALUE}",
        needs="--",
    ),
    _context(
        "assignment",
        "The value of a name such as password, API_KEY, client_secret or Authorization, in text and in JSON",
        # A possible report, as in `PASS: token=…`, must not hide the assignment in it.
        rf"""{_NAME}{_END_OF_NAME}(?P<separator>{_SEPARATOR})
            (?(bare)(?:(?<=[A-Za-z0-9]=)|(?![^\s=:]{{0,64}}[=:]))){_VALUE}""",
    ),
)
