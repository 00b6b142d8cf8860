"""The files that say how the project is cited, reported to and changed."""

import tomllib

import pytest
import yaml
from places import ROOT

from ngrpo import __version__

FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def test_the_citation_is_of_this_version_and_has_what_the_format_requires():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    own, *_ = project["license"].split(" AND ")  # what follows is that of the plotting library in the report page
    assert (citation["version"], citation["license"]) == (__version__, own)
    assert project["version"] == __version__


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_requires(path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= form.keys()
    identifiers = [field["id"] for field in form["body"]]
    assert len(set(identifiers)) == len(identifiers) > 3
    assert all(field["attributes"]["label"] for field in form["body"])
    assert {field["type"] for field in form["body"]} <= {"textarea", "input", "dropdown", "checkboxes", "markdown"}


def test_the_site_is_built_by_continuous_integration():
    assert "mkdocs" in (ROOT / ".ci/run").read_text()
    assert ".ci/run" in (ROOT / ".github/workflows/ci.yaml").read_text()


def test_the_tests_with_vllm_run_in_continuous_integration_as_they_are_documented():
    """Those beside its engine too, in an environment that lacks what other tests import."""
    for path in (".ci/run", "docs/vllm.md"):
        assert 'python -m pytest -m "vllm and not slow"\n' in (ROOT / path).read_text().replace('python"', "python")
