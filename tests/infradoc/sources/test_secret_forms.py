"""Every form in which a secret stands in logs, commands, manifests and headers; and what only looks like one."""

from __future__ import annotations

import base64

import pytest

from infradoc.sources.secrets import without_secrets

SECRET = "hunter2secretXYZ"
FORMS = [
    # flags
    "--api-key {}",
    '"--api-key", "{}"',
    "['--api-key', '{}']",
    "- --api-key\n- {}",
    "--api-key \\\n  {}",
    "--api-key k1 {}",
    "--api-key a,{}",
    "--secret-key {}",
    "--bearer-token {}",
    "--ngrok-authtoken {}",
    "--aws-secret-access-key {}",
    "huggingface-cli login --token {}",
    "docker login -u me -p {} registry",
    "sshpass -p {} ssh host",
    "curl -u me:{} http://host",
    "wandb login {}",
    # variables and settings
    "setx HF_TOKEN {}",
    "ENV HF_TOKEN {}",
    "DB_PASS={}",
    "MYSQL_PWD={}",
    "AZURE_STORAGE_KEY={}",
    "AccountKey={};EndpointSuffix=x",
    "aws_secret_access_key = {}",
    "API_KEYS={},other",
    "api_keys: [one, {}]",
    "accessToken: {}",
    "private_key: {}",
    '\\"api_key\\": \\"{}\\"',
    "login(token='{}')",
    '"token": "{}"',
    "Invalid user token: {}",
    # name and value apart
    "- name: HF_TOKEN\n  value: {}",
    '{{"name": "HF_TOKEN", "value": "{}"}}',
    # headers and URLs
    "Authorization: Bearer {}",
    "Authorization: Basic {}==",
    "authorization={}",
    "(b'authorization', b'Bearer {}')",
    "X-Auth-Token: {}",
    "Cookie: session={}",
    "http://me:p@{}@host:1",
    "me:{}@proxy:80",
    "https://host/?token={}&x=1",
    "https://bucket/x?X-Amz-Signature={}",
    "https://account/c?sv=2020&sig={}",
    "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
    # source, sentences, Chinese, HTML
    'os.environ["HF_TOKEN"] = "{}"',
    "os.environ['OPENAI_API_KEY']='{}'",
    'os.environ.setdefault("HF_TOKEN", "{}")',
    "Invalid API key provided: {}",
    "bad api key: {}",
    "HF_TOKEN is {}",
    "the secret access key was {}",
    "密码：{}",
    "token：{}",
    "密钥={}",
    "&quot;api_key&quot;: &quot;{}&quot;",
    "pwd={}",
    "accessKeyId={}",
    '{{"auths": {{"ghcr.io": {{"auth": "{}"}}}}}}',
    # hooks whose address is the key
    "https://open.feishu.cn/open-apis/bot/v2/hook/{}",
    "https://api.telegram.org/bot12345:{}xyz0",
    "https://discord.com/api/webhooks/1234/{}",
    "https://x.webhook.office.com/webhookb2/{}",
]
SHAPES = [
    "hf_oauth_" + "a1" * 15,
    "gsk_" + "a1" * 20,
    "xai-" + "a1" * 20,
    "npm_" + "a1" * 18,
    "dckr_pat_" + "a1" * 14,
    "sk_live_" + "a1" * 12,
    "xapp-1-A-" + "a1" * 15,
    "whsec_" + "a1" * 12,
    "eyJhbGciOi.eyJzdWIi1.abcdefghij",
    base64.b64encode(b"hf_" + b"a1" * 15).decode(),
]
PLAIN = [
    "#new-seq: 1, #new-token: 8192, #cached-token: 0, token usage: 0.00",
    "non-default args: {'max_num_batched_tokens': 1024, 'api_key': None}",
    "Namespace(api_key=None, hf_token=None, port=8000)",
    "x/etc/passwd leads out of the archive and was left out.",
    "bos_token: <s>, pad_token_id=151643, eos_token='</s>'",
    "docker run --user 1000:1000 image:v1@sha256:0123456789abcdef",
    "root@host:/work# vllm serve m --port 8000",
    "prompt tokens: 2048, completion tokens: 128",
    "PWD=/srv/models, token is 13 of 20, the API key is not set, auth: none",
    "KeyError: 'model.layers.0.self_attn.qkv_proj.weight'",
    "Incorrect key: value pairs, monkey=1, tokenizer=org/model-v0.2",
    "--max-num-batched-tokens 8192 --max-model-len 32768 --tokenizer-mode auto",
]


@pytest.mark.parametrize("form", FORMS)
def test_no_form_keeps_its_secret(form):
    assert SECRET not in without_secrets(form.format(SECRET))


@pytest.mark.parametrize("form", FORMS)
def test_what_is_hidden_stays_hidden(form):
    once = without_secrets(form.format(SECRET))
    assert SECRET not in without_secrets(once)


@pytest.mark.parametrize("secret", SHAPES)
@pytest.mark.parametrize("around", ["{}", "x={}", "failed: {} is wrong", "_{}"])
def test_shapes(secret, around):
    assert secret not in without_secrets(around.format(secret))


@pytest.mark.parametrize("text", PLAIN)
def test_what_holds_no_secret_stays(text):
    assert without_secrets(text) == text
