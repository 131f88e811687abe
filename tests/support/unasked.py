"""A file system of pyarrow's that is asked for nothing: those of faulty stores add what Firn does ask for."""

from typing import Any

from pyarrow.fs import FileInfo, FileSelector, FileSystemHandler


class Unasked(FileSystemHandler):  # type: ignore[misc]  # has no type information
    """Refuses every call, so that a new one of Firn's is noticed; paths are as they are."""

    def get_type_name(self) -> str:
        return type(self).__name__

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        raise NotImplementedError

    def get_file_info_selector(self, selector: FileSelector) -> list[FileInfo]:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        raise NotImplementedError

    def create_dir(self, path: str, recursive: bool) -> None:
        raise NotImplementedError

    def delete_dir(self, path: str) -> None:
        raise NotImplementedError

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def move(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> Any:
        raise NotImplementedError

    def open_input_file(self, path: str) -> Any:
        raise NotImplementedError

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError

    def open_append_stream(self, path: str, metadata: Any) -> Any:
        raise NotImplementedError
