# SPDX-License-Identifier: Apache-2.0
"""Test that no page of the repository has a broken link."""

from pathlib import Path

from systola.verif.kit.links import dead_links
from systola.verif.packaging.test_repository import repository_files


def test_links() -> None:
    pages = [path for path in repository_files() if path.suffix == ".md"]
    assert len(pages) > 20
    assert list(dead_links(pages)) == []


def test_dead_links_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(
        "# One heading: `code`\n[right](b.md#second-part) [right](#one-heading-code) "
        "[`code`](missing.md) [wrong](#second-part) [wrong](b.md#third)\n"
        "`[no link](nowhere.md)` [web](https://example.org/x.md#y)\n"
        "```\n# no heading\n[no link](nowhere.md)\n```\n[wrong](#no-heading)\n"
    )
    (tmp_path / "b.md").write_text("## Second part\n")
    found = [line.split(": ")[1] for line in dead_links([tmp_path / "a.md"])]
    assert found == ["missing.md", "#second-part", "b.md#third", "#no-heading"]
