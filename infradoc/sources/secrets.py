"""Takes secrets out of everything that is shown or kept: logs and launch commands hold keys.

Two ways to know one: by its own shape, wherever it stands, and by the name before it. Repeats are bounded, so no text
takes quadratic time.
"""

from __future__ import annotations

import re
from typing import Any

from infradoc_rules.lazy_pattern import lazy

HIDDEN = "REDACTED"

_SHAPES = lazy(
    r"(?<![A-Za-z0-9])(?:hf_(?:oauth_)?[A-Za-z0-9]{16,200}"
    r"|sk-[A-Za-z0-9_-]{16,250}|[srp]k_(?:live|test)_[A-Za-z0-9]{16,200}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{16}"
    r"|gh[opusr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}"
    r"|glpat-[A-Za-z0-9_-]{16,100}"
    r"|(?:xox[abeprs]|xapp)-[A-Za-z0-9-]{10,250}"
    r"|AIza[A-Za-z0-9_-]{30,60}|ya29\.[A-Za-z0-9_-]{20,500}"
    r"|(?:nvapi|pypi)-[A-Za-z0-9_-]{20,250}"
    r"|(?:xai|pplx)-[A-Za-z0-9]{24,200}|(?:gsk|tgp_v1|npm|r8|rpa|lin_api|lsv2_pt|lsv2_sk|dckr_pat|dop_v1)_[A-Za-z0-9_-]{24,200}"
    r"|SG\.[A-Za-z0-9_-]{16,40}\.[A-Za-z0-9_-]{16,80}"
    r"|eyJ[A-Za-z0-9_-]{6,2000}\.[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{6,2000}"
    r"|(?:aGZf|c2st|Z2hwX|bnZhcGkt)[A-Za-z0-9+/]{16,400}={0,2}"  # hf_, sk-, ghp_, nvapi- in base64, as in a Secret
    r"|whsec_[A-Za-z0-9+/=_-]{12,200}"
    r"|hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9_/-]{8,200}"
    r"|open\.(?:feishu\.cn|larksuite\.com)/open-apis/bot/v\d/hook/[A-Za-z0-9_-]{8,200}"
    r"|(?:discord(?:app)?\.com/api/webhooks|[\w.-]{1,80}\.office(?:365)?\.com/webhook\w{0,4})/[A-Za-z0-9_/@-]{8,400}"
    r"|api\.telegram\.org/bot\d{4,20}:[A-Za-z0-9_-]{20,100})"
)
_PEM = lazy(r"(-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----).{0,20000}?(?:(?=-----END )|$)", re.DOTALL)
_USERINFO = lazy(r"(://)[^/\s'\"]{1,300}@")
_LOGIN_AT_HOST = lazy(r"(?<![\w/:.-])([\w.-]{1,64}:)[^\s@/:'\"]{3,200}@(?!sha256:)(?=[\w.-]{1,200}:\d)")
_QUERY = lazy(r"([?&](?:token|key|sig|signature|auth|code|X-Amz-\w{1,30})=)[^&\s'\"]{4,2000}", re.IGNORECASE)

# The end of a name after which a secret comes. A bare "token" is nearly always a count here, and so are most names that
# end in it, so those are named one by one; "secret" and the like are never anything else.
_NAME = (
    r"(?:api[-_ ]?keys?|(?:access|account|secret|private|signing|encryption|storage|licen[sc]e|subscription|master"
    r"|service|auth|client|shared|shared[-_]?access)[-_ ]?keys?(?:[-_]?id)?|secrets?|passw(?:or)?ds?|passphrase"
    r"|[-_](?:pass|pwd)|(?:hf|hub|hugging_?face|auth|access|admin|refresh|session|bearer|user|bot|api|git|github|gitlab"
    r"|ngc|wandb|oauth|login|registry|id|security|personal)[-_]?tokens?|credentials?|dsn"
    r"|(?<![A-Za-z_-])pwd(?=['\"]?\s{0,3}[=:]\s{0,3}['\"]?[^/\s~.$'\"])|(?<=['\"])auth(?=['\"]\s{0,3}:)|密码|口令|密钥|秘钥|令牌)"
)
_QUOTE = r"&(?:quot|apos|\#3[49]|\#x2[27]);"  # as a page of HTML shows it
_CLOSE = rf"\\{{0,3}}(?:['\"]|{_QUOTE})?\]?"  # with a bracket: os.environ["HF_TOKEN"]
_SEPARATOR = r"[ \t]{0,3}(?:=>|[=:：＝])\s{0,3}"
_PLAIN = r"[^\s,;&)}\]'\"\\]{1,4000}(?:,[^\s,;&)}\]'\"\\]{1,4000}){0,20}"
_VALUE = (
    r"(?!(?:None|null|true|false|REDACTED|~)\b)(?:b?\\{0,3}(?:'(?:[^'\\]|\\.){1,4000}(?:'|$)|\"(?:[^\"\\]|\\.){1,4000}(?:\"|$))"
    rf"|{_QUOTE}[^&\s]{{1,4000}}|\[(?!\])[^\]]{{1,4000}}(?:\]|$)|{_PLAIN})"
)
_NAMED = lazy(rf"(?P<kept>{_NAME}{_CLOSE}{_SEPARATOR}){_VALUE}", re.IGNORECASE)
# 'name', 'value' in a list, and what follows a flag; a server may take several keys after one flag.
_LISTED = lazy(
    rf"(?P<kept>(?<![\w-])(?:--?[\w-]{{0,40}}?{_NAME}|--token|[A-Z0-9_]{{1,60}}(?:KEY|TOKEN|PASSWORD|SECRET))"
    rf"\\{{0,3}}['\"]\s{{0,20}}[, ]\s{{0,20}}){_VALUE}",
    re.IGNORECASE,
)
_FLAG = lazy(
    rf"(?P<kept>(?<![\w-])--?(?:[\w-]{{0,40}}?{_NAME}|token|authtoken|[\w-]{{0,40}}[-_](?:auth)?token(?!\S?\s{{0,3}}\d{{1,9}}(?:\s|$)))"
    rf"(?:=|\s{{0,20}}\\?\s{{1,20}}(?:-[ \t])?))(?!-){_VALUE}"
    r"(?:[ \t]{1,3}(?=[^\s/]{0,80}\d)(?=[^\s/]{0,80}[A-Za-z])[^\s/'\"=-][^\s/'\"=]{7,200}(?=\s|$)){0,20}",
    re.IGNORECASE,
)
# Of environment variables also with a space (`setx`, `ENV`), and every _TOKEN and _KEY of theirs.
_VARIABLE = lazy(
    r"(?P<kept>(?<![a-z0-9])(?:[A-Z0-9_]{0,60}(?:API_?KEYS?|ACCESS_KEY(?:_ID)?|SECRET(?:_KEY)?|PASSWORD|PASSWD"
    r"|_PASS|_PWD|_KEY|_TOKEN|AUTHTOKEN))"
    rf"{_CLOSE}(?:{_SEPARATOR}|[ \t]{{1,3}}(?=\S{{4}}))){_VALUE}"
)
# A Kubernetes variable or secret says name and value apart.
_APART = lazy(
    rf"(?P<kept>\bname{_CLOSE}\s{{0,3}}:\s{{0,3}}{_CLOSE}[\w.-]{{0,60}}(?:{_NAME}|[_-](?:KEY|TOKEN))[\w.-]{{0,20}}{_CLOSE}\s{{0,3}},?\s{{0,40}}"
    rf"{_CLOSE}value{_CLOSE}\s{{0,3}}[:=]\s{{0,3}}){_VALUE}",
    re.IGNORECASE,
)
_HEADER = lazy(
    rf"(?P<kept>(?:\bauthorization{_CLOSE}\s{{0,3}}[:=,]\s{{0,3}}(?:b(?=['\"]))?{_CLOSE}(?:(?:bearer|basic|token|digest|apikey)\s{{1,3}})?"
    rf"|\b(?:bearer|apikey)\s{{1,3}}(?=\S{{4}})|\bx-[\w-]{{0,40}}(?:key|token|secret){_CLOSE}:\s{{0,3}}(?:b(?=['\"]))?{_CLOSE}"
    rf"|\b(?:set-)?cookie{_CLOSE}\s{{0,3}}[:,]\s{{0,3}}(?:b(?=['\"]))?{_CLOSE}))"
    rf"(?!REDACTED|(?:bearer|basic|token|digest|apikey)\s)[^\s'\",;)}}\]\\]{{1,4000}}(?:;[^'\"\n]{{1,4000}})?",
    re.IGNORECASE,
)
# A bare token's value counts as a secret when it is long and has letters and digits.
_TOKEN = lazy(
    r"(?P<kept>\btokens?\\{0,3}['\"]?\s{0,2}[=:：＝]\s{0,2}\\{0,3}['\"]?)(?=[^\s'\"]{0,200}\d)(?=[^\s'\"]{0,200}[A-Za-z])"
    r"[A-Za-z0-9_.+/=-]{12,2000}",
    re.IGNORECASE,
)
# In a sentence: "Invalid API key provided: X", "HF_TOKEN is X". What is one has letters and digits.
_SAID = lazy(
    rf"(?P<kept>(?:{_NAME}|[A-Z0-9_]{{1,60}}_(?:KEY|TOKEN)|\btoken)['\"`]?\s{{1,3}}"
    r"(?:(?:provided|given|used|received|sent)(?:\s{0,3}[:=]|\s{1,3}(?:is|was))?|is|was|set\s{1,3}to)\s{1,3}['\"`]?)"
    r"(?=[^\s'\"`]{0,200}\d)(?=[^\s'\"`]{0,200}[A-Za-z])[^\s'\"`]{8,2000}",
    re.IGNORECASE,
)
_TYPED = lazy(
    r"(?P<kept>\bsshpass\s{1,3}-p\s{0,3}|\blogin\b[^\n]{0,100}?\s(?:-p|--password)[ =]{1,3}|\bwandb login\s{1,3}"
    r"|(?<!\S)(?:-u|--user)[= ]{1,3}(?!\d{1,9}:\d{1,9}(?:\s|$))[\w.@-]{1,64}:"
    r"|\bpassword[ \t]{1,3}(?=\S{0,80}\d))[^\s]{3,300}",
)
_BY_NAME = (_APART, _HEADER, _LISTED, _FLAG, _NAMED, _VARIABLE, _TOKEN, _SAID, _TYPED)
# What any of them needs: most texts of a report hold none of it and are left at once.
_HINT = lazy(
    r"key|token|secret|pass|pwd|credential|dsn|authorization|bearer|cookie|://|@|[?&]|login|-u\s|--user|[-_.]\w{12}|eyJ|AIza"
    r"|whsec|auth|[密口令秘]|AKIA|ASIA|aGZf|c2st|Z2hwX|bnZhcGkt",
    re.IGNORECASE,
)


def without_secrets(text: str) -> str:
    """`text` with keys, tokens and passwords replaced."""
    if not _HINT.search(text):
        return text
    text = _PEM.sub(rf"\1 {HIDDEN} ", text)
    text = _USERINFO.sub(rf"\1{HIDDEN}@", text)
    text = _LOGIN_AT_HOST.sub(rf"\1{HIDDEN}@", text)
    text = _QUERY.sub(rf"\1{HIDDEN}", text)
    for pattern in _BY_NAME:
        text = pattern.sub(rf"\g<kept>{HIDDEN}", text)
    return _SHAPES.sub(HIDDEN, text)


def clean_report(value: Any) -> Any:
    """A report (or any part of one) in which no text holds a secret."""
    if isinstance(value, str):
        return without_secrets(value) if len(value) > 8 else value
    if isinstance(value, list | tuple):
        return [clean_report(item) for item in value]
    return {key: clean_report(item) for key, item in value.items()} if isinstance(value, dict) else value
