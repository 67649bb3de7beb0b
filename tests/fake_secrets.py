"""Secrets to plant, of every shape that Holdfast knows; none of them opens anything."""

import random
import string

BASE62 = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits

# Secrets are made here rather than written down, so that no scanner takes this file for a leak.
chance = random.Random("holdfast")


def letters(length: int, alphabet: str = BASE62) -> str:
    return "".join(chance.choice(alphabet) for _ in range(length))


def key_block(kind: str, *, lines: int = 4) -> str:
    body = "\n".join(letters(64) for _ in range(lines))
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


JWT = ".".join(("eyJ" + "hbGciOiJIUzI1NiJ9", "eyJ" + "zdWIiOiIxMjM0In0", letters(43)))

# Secrets that are known by their own letters, by the name of the pattern that finds them.
SHAPES = {
    "pem": [
        key_block("RSA " + "PRIVATE KEY"),
        key_block("OPENSSH " + "PRIVATE KEY", lines=9),
        key_block("PRIVATE KEY"),
        key_block("EC " + "PRIVATE KEY").replace("\n", "\\n"),
        key_block("PGP " + "PRIVATE KEY BLOCK"),
        key_block("ENCRYPTED " + "PRIVATE KEY").replace("\n", " "),
    ],
    "jwt": [JWT, JWT.rpartition(".")[0]],
    "aws": ["AK" + "IA" + letters(16, UPPER), "AS" + "IA" + letters(16, UPPER)],
    "github": [*(f"gh{kind}_" + letters(36) for kind in "pousr"), "github_" + "pat_" + letters(82)],
    "gitlab": ["glpat" + "-" + letters(20), "gldt" + "-" + letters(20), "glagent" + "-" + letters(50)],
    "slack": [
        "xox" + "b-" + "-".join((letters(12, string.digits), letters(12, string.digits), letters(24))),
        "xox" + "p-" + "-".join((letters(12, string.digits), letters(32, HEX))),
        "xapp" + "-1-A" + letters(10, UPPER) + "-" + letters(64, HEX),
    ],
    "discord": [
        "MT" + letters(22) + "." + letters(6) + "." + letters(27),
        "Nz" + letters(24) + ".Y1b-_x." + letters(38),
    ],
    "anthropic": ["sk-" + "ant-api03-" + letters(93) + "-" + letters(6) + "AA"],
    "openai": [
        "sk-" + letters(20) + "T3Blbk" + "FJ" + letters(20),
        "sk-" + "proj-" + letters(20) + "T3Blbk" + "FJ" + letters(20),
    ],
    "google": ["AI" + "za" + letters(35), "ya" + "29." + letters(60), "GOC" + "SPX-" + letters(28)],
    "stripe": ["sk_" + "live_" + letters(24), "rk_" + "live_" + letters(24), "whsec" + "_" + letters(32)],
    "twilio": ["A" + "C" + letters(32, HEX), "S" + "K" + letters(32, HEX)],
    "sendgrid": ["SG" + "." + letters(22) + "." + letters(43)],
    "mailgun": ["key" + "-" + letters(32, LOWER)],
    "npm": ["npm" + "_" + letters(36)],
    "pypi": ["pypi" + "-AgEIcHlwaS5vcmc" + letters(80)],
    "gateway": ["hf_" + "gw_" + letters(43)],
    "huggingface": ["hf" + "_" + letters(34)],
    "age": ["AGE-" + "SECRET-KEY-1" + letters(58, UPPER)],
    "outer-key": ["hf_" + "key_" + letters(43)],
    "vault": ["hvs" + "." + letters(24), "hvb" + "." + letters(140)],
    "vault-old": ["s" + "." + "aB3" + letters(21)],
    "groq": ["gsk" + "_" + letters(52)],
    "xai": ["xai" + "-" + letters(80)],
    "replicate": ["r8" + "_" + letters(37)],
    "databricks": ["dapi" + letters(32, HEX), "dapi" + letters(32, HEX) + "-2"],
    "shopify": [f"shp{kind}_" + letters(32, HEX) for kind in ("at", "ss", "ca", "pa")],
    "tailscale": ["tskey" + "-auth-k" + letters(11) + "CNTRL-" + letters(32), "tskey" + "-" + letters(24)],
    "digitalocean": [f"do{kind}_v1_" + letters(64, HEX) for kind in "por"],
    "notion": ["secret" + "_" + letters(43), "ntn" + "_" + letters(46)],
    "linear": ["lin_" + "api_" + letters(40)],
}

SHORT = "hunter" + "2"
ODD = "p@ss:w0rd!" + "#$%^*"
BASE64 = letters(39) + "/"

# Secrets that are known by what stands around them: the pattern, the text, and what must remain of it.
SURROUNDED = [
    ("telegram", "bot 110201543:{}", "AA" + letters(33)),
    ("azure", "AccountName=me;AccountKey={};EndpointSuffix=x", letters(86) + "=="),
    ("aws-assignment", "aws_secret_access_key = {}", BASE64),
    ("aws-assignment", 'AWS_SECRET_ACCESS_KEY="{}"', BASE64),
    ("aws-assignment", "aws_key: '{}'", BASE64),
    (
        "webhook",
        "https://hooks.slack.com/services/{}",
        "/".join(("T" + letters(8), "B" + letters(8), letters(24))),
    ),
    ("webhook", "https://discord.com/api/webhooks/{}", letters(18, string.digits) + "/" + letters(68)),
    (
        "webhook",
        "https://discordapp.com/api/v10/webhooks/{} now",
        letters(18, string.digits) + "/" + letters(68),
    ),
    ("url", "postgres://bob:{}@db.example.org:5432/main", SHORT),
    ("url", "redis://:{}@cache/0 is slow", SHORT),
    ("url", "amqp://bob:{}@host?x=1", "p@ss@" + SHORT),
    ("url", "s3://[redacted:aws]:{}@bucket", BASE64[:-1]),
    ("url", "clone https://bob:{}@git.example.org/a.git", letters(64, HEX)),
    ("cookie-line", "Cookie: {}", "sid=" + letters(20) + "; theme=dark"),
    ("cookie-line", "< Set-Cookie: {}\n< Date: today", "JSESSIONID=" + letters(20) + "; Path=/; HttpOnly"),
    ("cookie-line", "curl -H 'cookie: {}' https://example.org", "a=b"),
    ("cookie-line", "Cookie:\t{}", "session=" + letters(20)),
    ("bearer", "it sent Bearer {} again", letters(30)),
    ("sas", "https://a.blob.core.windows.net/c?sv=2022&se=x&sig={}&sp=r", letters(40) + "%2Bab%3D"),
    ("sas", "SharedAccessSignature=sv=2022&sig={}", letters(43) + "="),
    ("url-key", "GET https://maps.example.org/v1?key={}&q=x", "k1" + letters(20)),
    ("url-key", "https://example.org/?q=x&key={} failed", "k1" + letters(30)),
    ("sentry", "https://{}@o1.ingest.sentry.io/42", letters(32, HEX)),
    ("sentry", "DSN https://{}@errors.example.org/7 is set", letters(32, HEX)),
    ("curl", "curl -u bob:{} https://example.org", "swordfish"),
    ("curl", "curl -ubob:{} https://example.org", "swordfish"),
    ("curl", "curl -s --user 'bob:{}' https://example.org", "correct horse"),
    ("curl", 'curl -X POST \\\n  -u "bob:{}" https://example.org', "swordfish"),
    ("curl", "curl --proxy-user=bob:{} https://example.org", "swordfish"),
    ("sshpass", "sshpass -p {} ssh bob@example.org", "swordfish"),
    ("sshpass", "sshpass -p '{}' ssh bob@example.org", "correct horse"),
    ("sshpass", "sshpass -p{} ssh bob@example.org", SHORT),
    ("flag", "deploy --token {} --now", letters(20)),
    ("flag", "mysql --user bob --password {}", SHORT),
    ("flag", 'run --api-key "{}"', "correct horse"),
    ("flag", "run --db-password '{}'", "swordfish"),
    ("assignment", "password={}", SHORT),
    ("assignment", "password={} user=bob", "letmein"),
    ("assignment", "PASSWORD: {}", ODD),
    ("assignment", 'API_KEY: "{}"', letters(12)),
    ("assignment", "export SECRET_KEY={}", letters(24)),
    ("assignment", "export DB_PASS={}\nls", "swordfish"),
    ("assignment", "https://example.org/?a=1&access_token={}&b=2", letters(12)),
    ("assignment", '{{"client_secret": "{}", "b": 1}}', "ab'c d"),
    ("assignment", r"{{\"refreshToken\":\"{}\",\"b\":1}}", letters(20)),
    ("assignment", "config['password'] = '{}'", "swordfish"),
    ("assignment", 'password: str = "{}"', "swordfish"),
    ("assignment", 'password := "{}"', r"sword\"fish"),
    ("assignment", "passphrase = `{}`", "correct horse battery staple"),
    ("assignment", "Authorization: Basic {}", "dXNl" + "cjpwYXNz"),
    ("bearer", "Authorization: Bearer {}", letters(20)),
    ("assignment", '-H "Authorization: token {}"', letters(20)),
    ("assignment", "'authorization': 'bearer {}'", letters(20)),
    ("assignment", "x-api-key: {}", letters(20)),
    ("assignment", "Server=db;Uid=sa;Pwd={};", "swordfish"),
    ("assignment", "login(password={})", SHORT),
    ("assignment", 'if token == "{}":', letters(20)),
    ("assignment", "credentials={}", letters(20)),
    ("assignment", "password: {}", "hunter"),
    ("assignment", "db:\n  user: bob\n  password: {}\n  port: 1", "hunter"),
    ("assignment", "- db_password: {}  # rotate me", "correct-horse-battery"),
    ("assignment", "+  spring.datasource.password: {}\n", "Hunter"),
    ("assignment", '"passphrase": {}', "hunter"),
]

SHAPE_CASES = [(name, secret) for name, secrets in SHAPES.items() for secret in secrets]
SECRETS = [secret for _, secret in SHAPE_CASES]

# Keys whose value is a secret, whatever it looks like.
NAMES = [
    "password", "passwd", "passphrase", "pass", "pwd", "db_pass", "user_password2", "secret", "client_secret",
    "secrets", "token", "access_token", "refresh_token", "bot-token", "id token", "api_key", "apikey",
    "api-key", "x-api-key", "api.key", "authorization", "proxy-authorization", "cookie", "set-cookie",
    "cookies", "private_key", "secret_key", "access_key", "signing_key", "account_key", "aws_key",
    "credentials",
]  # fmt: skip
