"""The pyarrow file system for a URL, with settings from the environment: credentials, and the server's address."""

from __future__ import annotations

import contextlib
import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cleanerd.errors import ConfigError
from cleanerd.segments.remote import SEPARATOR

if TYPE_CHECKING:
    import pyarrow.fs as pafs

ANSWER_SECONDS: Final = 30.0

_ADDRESS: Final = re.compile(r"([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\])(:[0-9]+)?", re.ASCII)

HDFS_NEEDS: Final = (
    "HDFS needs JAVA_HOME, libhdfs.so below HADOOP_HOME or in ARROW_LIBHDFS_DIR, Hadoop's jars in CLASSPATH"
)

AZURITE: Final = {
    "DefaultEndpointsProtocol": "http",
    "AccountName": "devstoreaccount1",
    "AccountKey": "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    "BlobEndpoint": "http://127.0.0.1:10000/devstoreaccount1",
}
"""The meaning of ``UseDevelopmentStorage=true``, as Microsoft documents it."""


def client_of(scheme: str, host: str, tries: int) -> pafs.FileSystem:
    """The file system of ``SCHEME://HOST``; ``tries``: of each request, if its library supports this.

    Raises:
        ConfigError: an invalid setting of the environment. OSError, ArrowException, ValueError: the library's errors.
    """
    import pyarrow.fs as pafs  # noqa: PLC0415 - what is local needs none

    if scheme == "s3":
        return _s3(host, tries)
    if scheme == "gs":
        return _gs(tries)
    if scheme.startswith("abfs"):
        return _azure(host)
    return pafs.HadoopFileSystem.from_uri(f"{scheme}{SEPARATOR}{host}/")


def account_of(host: str, where: str) -> tuple[str, str]:
    """Account and suffix in ``CONTAINER@ACCOUNT.dfs.SUFFIX``.

    Raises:
        ConfigError: it names no account.
    """
    container, _, address = host.rpartition("@")
    account, _, rest = address.partition(".")
    kind, _, suffix = rest.partition(".")
    if not container or not account or not _is_address(suffix) or kind not in ("dfs", "blob"):
        raise ConfigError(
            "names no container and account",
            where=where,
            hint="abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
        )
    return account, suffix


def _is_address(text: str) -> bool:
    """Whether it is a server's address, with or without a port, and without a login.

    Microsoft's library crashes for others.
    """
    try:
        port = urlsplit(f"//{text}").port
    except ValueError:
        return False
    return _ADDRESS.fullmatch(text) is not None and port != 0


def _s3(bucket: str, tries: int) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # noqa: PLC0415

    settings: dict[str, Any] = {}
    name = "AWS_ENDPOINT_URL_S3" if os.environ.get("AWS_ENDPOINT_URL_S3") else "AWS_ENDPOINT_URL"
    endpoint = os.environ.get(name)
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region:
        settings["region"] = region
    elif not endpoint:
        # The bucket's own region, which Amazon reports to everyone; without access the configuration has it.
        with contextlib.suppress(OSError):
            settings["region"] = pafs.resolve_s3_region(bucket)
    if endpoint:
        scheme, address = _endpoint(name, endpoint)
        settings |= {"endpoint_override": address, "scheme": scheme}
    return pafs.S3FileSystem(
        **settings,
        retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=tries),
        allow_delayed_open=tries > 1,  # then a small object is one request
        connect_timeout=ANSWER_SECONDS / 3,
        request_timeout=ANSWER_SECONDS,
    )


def _gs(tries: int) -> pafs.FileSystem:
    import pyarrow.fs as pafs  # noqa: PLC0415

    settings: dict[str, Any] = {}
    emulator = os.environ.get("STORAGE_EMULATOR_HOST")
    if emulator:
        scheme, address = _endpoint("STORAGE_EMULATOR_HOST", emulator, "http")
        settings = {"endpoint_override": address, "scheme": scheme, "anonymous": True}
    # This library has a time limit for its tries, in whole seconds; reads are repeated here.
    limit = timedelta(seconds=ANSWER_SECONDS if tries > 1 else 1)
    return pafs.GcsFileSystem(**settings, retry_time_limit=limit)


def _azure(host: str) -> pafs.FileSystem:
    """The account of a URL. By its name instead of the URL, for which pyarrow supports only one cloud."""
    import pyarrow.fs as pafs  # noqa: PLC0415

    account, suffix = account_of(host, f"abfs{SEPARATOR}{host}")
    settings: dict[str, Any] = {"dfs_storage_authority": f".dfs.{suffix}", "blob_storage_authority": f".blob.{suffix}"}
    values = _connection_string()
    if values.get("AccountName") == account:
        settings |= _azure_options(account, values)
    return pafs.AzureFileSystem(account, **settings)


def _connection_string() -> dict[str, str]:
    fields = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    values = dict(each.strip().partition("=")[::2] for each in fields if "=" in each)
    if values.get("UseDevelopmentStorage", "").lower() == "true":
        return AZURITE
    if "AccountName" not in values and "BlobEndpoint" in values:  # the portal's form of a signature
        url = urlsplit(values["BlobEndpoint"])
        values["AccountName"] = url.path.strip("/") or url.netloc.partition(".")[0]
    return values


def _azure_options(account: str, values: dict[str, str]) -> dict[str, Any]:
    """A connection string as pyarrow's options."""
    settings: dict[str, Any] = {}
    scheme = values.get("DefaultEndpointsProtocol", "https")
    if "EndpointSuffix" in values:
        if not _is_address(values["EndpointSuffix"]):
            raise ConfigError("EndpointSuffix in AZURE_STORAGE_CONNECTION_STRING is not an address")
        settings = {f"{kind}_storage_authority": f".{kind}.{values['EndpointSuffix']}" for kind in ("blob", "dfs")}
    if "BlobEndpoint" in values:
        url = urlsplit(values["BlobEndpoint"])
        scheme, path = url.scheme, url.path.strip("/")
        own, _, rest = url.netloc.partition(".")
        if not _is_address(url.netloc):
            path = own = ""
        if path == account:
            settings = {f"{kind}_storage_authority": url.netloc for kind in ("blob", "dfs")}
        elif own == account and not path:
            settings = {
                "blob_storage_authority": f".{rest}",
                "dfs_storage_authority": f".{rest.replace('blob.', 'dfs.', 1)}",
            }
        else:
            raise ConfigError(
                f"BlobEndpoint in AZURE_STORAGE_CONNECTION_STRING is not an address of {account}",
                hint=f"https://{account}.blob.SUFFIX, or http://HOST:PORT/{account}",
            )
    settings |= {"blob_storage_scheme": scheme, "dfs_storage_scheme": scheme}
    if "AccountKey" in values:
        settings["account_key"] = values["AccountKey"]
    elif "SharedAccessSignature" in values:
        settings["sas_token"] = "?" + values["SharedAccessSignature"].removeprefix("?")
    return settings


def _endpoint(name: str, text: str, scheme: str = "https") -> tuple[str, str]:
    """Scheme and address of the server in the variable ``name``, with a default scheme.

    Raises:
        ConfigError: it is not an address.
    """
    values, _, address = text.rpartition(SEPARATOR)
    if not _is_address(address.partition("/")[0]):
        raise ConfigError(f"{name} is not a server's address", hint="https://HOST:PORT, without a login")
    return values or scheme, address.rstrip("/")
