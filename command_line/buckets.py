"""TensorFlow's file functions, `tf.io.gfile`, for buckets that TensorFlow itself cannot open: s3://.

  tf.io.gfile.exists("s3://bucket/run/config.gin")        # after `import command_line.buckets`

TensorFlow has gs:// only, and no plugin for s3:// loads since TensorFlow 2.17. Everything that
writes to MODEL_DIR uses `tf.io.gfile`: this repository, seqio, and Orbax through etils. So its
functions are replaced by ones that pass addresses under s3:// to fsspec (the package s3fs) and all
others to TensorFlow's. Where s3fs is not installed nothing is replaced. Errors are TensorFlow's. As
under gs://, an empty folder is an object whose name ends in "/", and a file is there once it was
flushed or closed.

What TensorFlow writes without `tf.io.gfile` is written to a local file, which is then copied: event
files here, other files by `local_copy`.
"""

import contextlib
import functools
import glob as patterns
import importlib.util
import io
import os
import shutil
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

import wrapt

SCHEMES = ("s3",)
_NAMES = (
    *("copy", "exists", "glob", "isdir", "listdir", "makedirs", "mkdir", "remove", "rename"),
    *("rmtree", "stat", "walk"),
)


def is_installed() -> bool:
    """Return whether the package for s3:// is."""
    return importlib.util.find_spec("s3fs") is not None


def is_here(path: Any) -> bool:
    """Return whether an address is opened by this module."""
    try:
        return os.fspath(path).partition("://")[0] in SCHEMES and "://" in os.fspath(path)
    except TypeError:
        return False


def s3_server() -> dict[str, str]:
    """Return what AWS's variables say of the server, as settings of tensorstore's driver.

    tensorstore finds the keys itself, but not the address and, for one that is not Amazon's, the
    region.
    """
    setting = lambda *names: next((v for name in names if (v := os.environ.get(name))), None)
    endpoint = setting("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    region = setting("AWS_REGION", "AWS_DEFAULT_REGION") or (endpoint and "us-east-1")
    return {k: v for k, v in (("endpoint", endpoint), ("aws_region", region)) if v}


@functools.cache
def _system(scheme: str) -> Any:
    import fsspec

    return fsspec.filesystem(scheme, use_listings_cache=False)


def _open_system(path: Any) -> tuple[Any, str]:
    system = _system(os.fspath(path).partition("://")[0])
    return system, system._strip_protocol(os.fspath(path))


@contextlib.contextmanager
def _errors_of_tensorflow(path: Any) -> Iterator[None]:
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError:
        raise
    except Exception as error:
        kinds = {
            FileNotFoundError: tf.errors.NotFoundError,
            PermissionError: tf.errors.PermissionDeniedError,
            FileExistsError: tf.errors.AlreadyExistsError,
            NotADirectoryError: tf.errors.FailedPreconditionError,
            IsADirectoryError: tf.errors.FailedPreconditionError,
        }
        kind = next((kinds[k] for k in kinds if isinstance(error, k)), tf.errors.UnavailableError)
        if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError"):
            kind = tf.errors.PermissionDeniedError
        elif not isinstance(error, OSError) and "botocore" not in type(error).__module__:
            raise
        raise kind(None, None, f"{os.fspath(path)}: {error}") from error


class BucketFile(io.BufferedIOBase):
    """A file of a bucket as `tf.io.gfile.GFile` has it: all of it is a local file meanwhile."""

    def __init__(self, name: Any, mode: str = "r"):
        self.name, self.mode = name, mode
        self._text = "b" not in mode
        self._system, self._path = _open_system(name)
        self._writes = mode[0] in "wa"
        self._changed = mode[0] == "w"

    @functools.cached_property
    def _local(self) -> Any:
        """The local file; as TensorFlow's, a missing one is found out at the first use."""
        local = tempfile.NamedTemporaryFile()  # noqa: SIM115  `close` closes it
        if self.mode[0] in "ra":
            with _errors_of_tensorflow(self.name):
                if self.mode[0] == "r" or self._system.exists(self._path):
                    self._system.get_file(self._path, local.name)
            local.seek(0, os.SEEK_END if self.mode[0] == "a" else os.SEEK_SET)
        return local

    def read(self, n: int | None = -1) -> Any:
        """Return the next bytes, of a text file its next characters."""
        if not self._text:
            return self._local.read(-1 if n is None else n)
        found = self._local.read().decode("utf-8")
        if n is None or n < 0:
            return found
        self._local.seek(-len(found[n:].encode()), os.SEEK_CUR)
        return found[:n]

    def readline(self, size: int | None = -1) -> Any:
        """Return the next line with its end."""
        line = self._local.readline(-1 if size is None else size)
        return line.decode("utf-8") if self._text else line

    def write(self, content: Any) -> int:
        """Write bytes, or characters."""
        self._changed = True
        return self._local.write(content.encode("utf-8") if isinstance(content, str) else content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a byte."""
        return self._local.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._local.tell()

    def size(self) -> int:
        """Return the bytes in the file."""
        self._local.flush()
        return os.path.getsize(self._local.name)

    def readable(self) -> bool:
        """Return whether it is open for reading."""
        return not self._writes

    def writable(self) -> bool:
        """Return whether it is open for writing."""
        return self._writes

    def seekable(self) -> bool:
        """Return True."""
        return True

    def flush(self) -> None:
        """Make what was written visible to readers."""
        if self._writes and self._changed:
            self._local.flush()
            with _errors_of_tensorflow(self.name):
                self._system.put_file(self._local.name, self._path)
            self._changed = False

    def close(self) -> None:
        """Upload what was written, and end."""
        if not self.closed:
            try:
                super().close()  # which flushes
            finally:
                if "_local" in self.__dict__:
                    self._local.close()


class _Functions:
    """The functions of `tf.io.gfile` for one bucket or two."""

    def copy(self, src: Any, dst: Any, overwrite: bool = False) -> None:
        import tensorflow as tf

        if not overwrite and tf.io.gfile.exists(dst):
            raise tf.errors.AlreadyExistsError(None, None, f"{dst} exists")
        with tf.io.gfile.GFile(src, "rb") as source, tf.io.gfile.GFile(dst, "wb") as target:
            shutil.copyfileobj(source, target, 16 << 20)

    def exists(self, path: Any) -> bool:
        system, key = _open_system(path)
        return system.exists(key)

    def glob(self, pattern: Any) -> list[str]:
        system, key = _open_system(pattern)
        if not patterns.has_magic(key):
            return [os.fspath(pattern)] if system.exists(key) else []
        return sorted(system.unstrip_protocol(found) for found in system.glob(key))

    def isdir(self, path: Any) -> bool:
        system, key = _open_system(path)
        try:
            return system.info(key)["type"] == "directory"
        except FileNotFoundError:
            return False

    def listdir(self, path: Any) -> list[str]:
        system, key = _open_system(path)
        names = {found.rstrip("/") for found in system.ls(key, detail=False)}
        return sorted(name.rpartition("/")[2] for name in names if name != key.rstrip("/"))

    def makedirs(self, path: Any) -> None:
        system, key = _open_system(path)
        bucket, _, name = key.partition("/")
        if not hasattr(system, "call_s3"):
            system.makedirs(key, exist_ok=True)
        elif not name:
            system.call_s3("head_bucket", Bucket=bucket)
        elif not self.isdir(path):
            system.call_s3("put_object", Bucket=bucket, Key=f"{name.rstrip('/')}/", Body=b"")

    mkdir = makedirs

    def remove(self, path: Any) -> None:
        system, key = _open_system(path)
        if not system.exists(key):
            raise FileNotFoundError(f"{path} does not exist")
        system.rm_file(key)

    def rename(self, src: Any, dst: Any, overwrite: bool = False) -> None:
        import tensorflow as tf

        if self.isdir(src):
            raise NotADirectoryError(f"{src} is a folder, and a bucket cannot rename one")
        self.copy(src, dst, overwrite)
        tf.io.gfile.remove(src)

    def rmtree(self, path: Any) -> None:
        system, key = _open_system(path)
        if not self.isdir(path):
            raise FileNotFoundError(f"{path} does not exist")
        system.rm(key, recursive=True)

    def stat(self, path: Any) -> types.SimpleNamespace:
        system, key = _open_system(path)
        info = system.info(key)
        changed = info.get("LastModified") or info.get("created")
        return types.SimpleNamespace(
            length=int(info.get("size") or 0),
            mtime_nsec=int(changed.timestamp() * 1e9) if changed else 0,
            is_directory=info["type"] == "directory",
        )

    def walk(self, top: Any, topdown: bool = True, onerror: Any = None) -> Iterator[Any]:
        del onerror
        system, key = _open_system(top)
        for folder, folders, files in system.walk(key, topdown=topdown):
            mine = folder.rstrip("/").rpartition("/")[2]
            yield (
                system.unstrip_protocol(folder),
                sorted(name for name in folders if name),
                sorted(name for name in files if name and name != mine),
            )


def _dispatch(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def call(*args: Any, **kwargs: Any) -> Any:
        paths = [value for value in (*args, *kwargs.values()) if is_here(value)]
        if not paths:
            return theirs(*args, **kwargs)
        with _errors_of_tensorflow(paths[0]):
            return ours(*args, **kwargs)

    return call


@contextlib.contextmanager
def local_copy(path: str, endings: tuple[str, ...], read: bool = False) -> Iterator[str]:
    """Yield a path that TensorFlow's C++ can use for the files `path` plus each of `endings`.

    A path that TensorFlow opens is yielded as it is. Of any other the files are copied: from there
    before the block if it will `read` them, else to there after it.
    """
    import tensorflow as tf

    if not is_here(path):
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, os.path.basename(path))
        if read:
            for ending in endings:
                tf.io.gfile.copy(path + ending, local + ending)
        yield local
        if not read:
            for ending in endings:
                tf.io.gfile.copy(local + ending, path + ending, overwrite=True)


def _event_writer(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return `tf.summary.create_file_writer` for buckets too; a flush uploads the event file."""
    import tensorflow as tf

    @functools.wraps(create)
    def call(logdir: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_here(logdir):
            return create(logdir, *args, **kwargs)
        folder = tempfile.TemporaryDirectory(prefix="events-")
        writer = create(folder.name, *args, **kwargs)

        def upload() -> None:
            for name in os.listdir(folder.name):
                local = os.path.join(folder.name, name)
                tf.io.gfile.copy(local, os.path.join(logdir, name), overwrite=True)

        flush, close = writer.flush, writer.close

        def flush_and_upload() -> None:
            flush()
            upload()

        def close_and_upload() -> None:
            close()
            if os.path.isdir(folder.name):  # not closed before
                upload()
                folder.cleanup()

        writer.flush, writer.close = flush_and_upload, close_and_upload
        return writer

    return call


def install(tensorflow: Any) -> None:
    """Replace the functions of `tf.io.gfile` and `tf.summary.create_file_writer`, once.

    They are those of `tf.compat.v2` too, which seqio imports.
    """
    gfile, ours = tensorflow.io.gfile, _Functions()
    theirs = gfile.GFile
    if getattr(theirs, "has_buckets", False):
        return

    class WithBuckets(type):
        """Opens a BucketFile or a file of TensorFlow; both are instances of `GFile`."""

        def __call__(cls, name: Any, mode: str = "r") -> Any:
            return BucketFile(name, mode) if is_here(name) else theirs(name, mode)

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, (theirs, BucketFile))

    replaced = {name: _dispatch(getattr(gfile, name), getattr(ours, name)) for name in _NAMES}
    replaced["GFile"] = WithBuckets("GFile", (), {"has_buckets": True, "__doc__": theirs.__doc__})
    event_writer = _event_writer(tensorflow.summary.create_file_writer)
    for version in (tensorflow, tensorflow.compat.v2):
        for name, function in replaced.items():
            setattr(version.io.gfile, name, function)
        version.summary.create_file_writer = event_writer


if is_installed():
    wrapt.register_post_import_hook(install, "tensorflow")
