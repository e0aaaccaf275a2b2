"""A proxy of the environment sees neither the key nor a question to this machine, whatever its variables say."""

import shutil
import socketserver
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from asking import BRIEFING, EDIT, PROVIDERS, QUICK, WANTED, Model
from llm_servers import KEY, Server, says

from agent.errors import NoIdea
from agent.experiment import Options
from agent.proposers.llm import LLM
from agent.proposers.proposer import Messages

VARIABLES = [name for lower in ("http_proxy", "https_proxy", "all_proxy") for name in (lower, lower.upper())]


class Proxy(socketserver.ThreadingTCPServer):
    """Keep what a client says first, and hang up."""

    daemon_threads = True

    def __init__(self) -> None:
        self.said = b""
        super().__init__(("127.0.0.1", 0), Listener)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Listener(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.settimeout(0.2)
        try:
            while part := self.request.recv(1 << 16):
                self.server.said += part
                if b"CONNECT" in part:
                    break
        except TimeoutError:
            pass


@pytest.fixture
def proxy(monkeypatch):
    for name in (*VARIABLES, "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Proxy() as proxy:
        yield proxy


@PROVIDERS
@pytest.mark.parametrize("no_proxy", ["", "example.org,10.0.0.0/8,.internal"])
def test_a_server_on_this_machine_is_asked_past_every_proxy(provider, no_proxy, proxy, monkeypatch):
    monkeypatch.setenv("NO_PROXY", no_proxy)
    with Server(says(EDIT)) as server:
        for variable in VARIABLES:
            with monkeypatch.context() as patch:
                patch.setenv(variable, proxy.url)
                assert Model(server, provider).proposals()[0].script == WANTED
        for variable in VARIABLES:
            monkeypatch.setenv(variable, "socks9://no.such.proxy:1")  # no client can be set up with this one
        assert Model(server, provider).proposals()[0].script == WANTED
    assert KEY in str(server.requests[-1].headers)
    assert proxy.said == b""


@PROVIDERS
@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "0.0.0.0", "127.1", "0x7f.1"])
def test_this_machine_is_known_in_every_spelling(provider, host, proxy, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    with Server(says(EDIT)) as server:
        spec = server.spec(provider).replace("127.0.0.1", host)
        llm = LLM(Options(llm=spec), Messages(), QUICK, {f"{provider.upper()}_API_KEY": KEY})
        assert llm.proposals(BRIEFING)[0].script == WANTED
    assert KEY in str(server.requests[0].headers)
    assert proxy.said == b""


@PROVIDERS
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_on_the_way_to_another_machine_gets_no_key(provider, scheme, proxy, monkeypatch):
    for variable in VARIABLES:
        monkeypatch.setenv(variable, proxy.url)
    keys = {f"{provider.upper()}_API_KEY": KEY}
    llm = LLM(Options(llm=f"{provider}:toy@{scheme}://models.invalid/v1"), Messages(), replace(QUICK, retries=0), keys)
    with pytest.raises(NoIdea):
        llm.proposals(BRIEFING)
    assert proxy.said.startswith(b"CONNECT models.invalid:443" if scheme == "https" else b"POST http://models.invalid/")
    assert KEY.encode() not in proxy.said


@PROVIDERS
def test_this_machine_over_https_goes_past_a_proxy_with_the_certificates_of_the_environment(
    provider, proxy, monkeypatch, tmp_path
):
    with Server(says(EDIT), certificate=self_signed(tmp_path)) as server:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        assert "cannot be reached" in Model(server, provider, patience=replace(QUICK, retries=0)).refusal()
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert Model(server, provider).proposals()[0].script == WANTED
    assert proxy.said == b""


def self_signed(folder: Path) -> Path:
    """Return a file with a key and a certificate of 127.0.0.1; the certificate alone is in cert.pem beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl here; install it: apt-get install -y openssl")
    names = ("-subj", "/CN=here", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2")
    files = ("-keyout", folder / "key.pem", "-out", folder / "cert.pem")
    kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    subprocess.run(["openssl", "req", "-x509", *kind, *names, *files], check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text() + (folder / "cert.pem").read_text())
    return both
