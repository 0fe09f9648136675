"""The page of a topic's settings: units, bounds and sources, a preview of the difference, and one Save."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape

import pytest
from django.test import Client
from django.urls import reverse

from instances.models import Instance
from tenants.models import AuditEntry, Member
from tests.component.console.fakes import FakeDataPlane

TOPIC = "orders.created"
UNITS = {"retention.ms:unit": "h", "retention.bytes:unit": "none"}
NOW = {"retention.ms": "24", **UNITS, "retention.bytes": "", "cleanup.policy": ""}


def place(instance: Instance) -> str:
    return reverse("page-topic-config", args=[instance.pk, TOPIC])


def agreed(page: str) -> dict[str, str]:
    """Returns the hidden fields of the confirmation after a preview."""
    fields = re.findall(r'<input type="hidden" name="(changes|expected)" value="([^"]*)"', page)
    return {name: unescape(value) for name, value in fields} | {"act": "save"}


def preview(client: Client, instance: Instance, status: int = 200, **given: str) -> str:
    response = client.post(place(instance), {"act": "preview", **NOW, **given})
    assert response.status_code == status, response.content
    return response.content.decode()


def config(data_plane: FakeDataPlane, instance: Instance) -> dict[str, str]:
    return data_plane.configs[instance.pk, TOPIC]


def test_values_stand_in_their_unit_with_where_they_come_from(ida: Client, instance: Instance) -> None:
    page = unescape(ida.get(place(instance)).content.decode())
    row = page[page.index("Keep messages for") : page.index("Keep at most, in each partition")]
    assert 'value="1"' in row
    assert '<option value="d" selected>days</option>' in row
    assert "<b>24 h</b>" in row
    assert "of this topic" in row
    unlimited = page[page.index("Keep at most, in each partition") : page.index("Cleanup")]
    assert "<b>no limit</b>" in unlimited
    assert "the default" in unlimited


def test_the_difference_is_shown_first_and_saved_as_it_was_shown(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    page = preview(
        ida, instance, **{"retention.ms": "3", "retention.ms:unit": "d", "retention.bytes": "1.5",
                          "retention.bytes:unit": "GB", "cleanup.policy": "compact,delete"}
    )  # fmt: skip
    for words in ("24 h", "3 d", "no limit", "1.5 GB", "both (compact,delete)", "Save 3 changes"):
        assert words in unescape(page)
    assert config(data_plane, instance) == {"retention.ms": "86400000"}
    assert "3 settings are saved." in ida.post(place(instance), agreed(page), follow=True).content.decode()
    assert config(data_plane, instance) == {
        "retention.ms": "259200000", "retention.bytes": "1500000000", "cleanup.policy": "compact,delete",
    }  # fmt: skip
    assert AuditEntry.objects.get(action="topic.changed").after == {"config": config(data_plane, instance)}


def test_an_empty_field_is_the_default_and_the_defaults_own_value_too(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    for given in ({"retention.ms": ""}, {"retention.ms": "7", "retention.ms:unit": "d"}):
        page = preview(ida, instance, **given)
        assert agreed(page)["changes"] == '{"retention.ms": null}'
    ida.post(place(instance), agreed(page))
    assert config(data_plane, instance) == {}


def test_no_limit_is_a_choice(ida: Client, instance: Instance, data_plane: FakeDataPlane) -> None:
    page = preview(ida, instance, **{"retention.ms": "", "retention.ms:unit": "none"})
    ida.post(place(instance), agreed(page))
    assert config(data_plane, instance) == {"retention.ms": "-1"}


def test_the_same_value_in_another_unit_changes_nothing(ida: Client, instance: Instance) -> None:
    page = preview(ida, instance, **{"retention.ms": "1", "retention.ms:unit": "d"})
    assert "Nothing is changed." in page
    assert 'name="changes"' not in page


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"retention.ms": "0.5", "retention.ms:unit": "ms"}, "This is finer than the setting is."),
        ({"retention.ms": "9223372036855", "retention.ms:unit": "d"}, "At most"),
        ({"retention.ms": "5", "retention.ms:unit": "none"}, "leave the number empty"),
        ({"retention.ms": "-5"}, "greater than or equal to 0"),
        ({"retention.ms": "much"}, "Enter a number."),
        ({"retention.ms": "1e9999"}, ""),
        ({"retention.ms:unit": "weeks"}, ""),
        ({"cleanup.policy": "burn"}, "not one of the available choices"),
    ],
)
def test_an_invalid_value_is_refused_and_changes_nothing(
    given: dict[str, str], words: str, ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    assert words in unescape(preview(ida, instance, 422, **given))
    assert config(data_plane, instance) == {"retention.ms": "86400000"}


def test_a_refusal_of_brokers_stands_beside_its_setting(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    config(data_plane, instance)["flush.ms"] = "5"
    page = unescape(preview(ida, instance, 422, **{"flush.ms": "refused"}))
    assert "Invalid value refused for configuration flush.ms" in page
    assert 'name="changes"' not in page


def test_settings_that_changed_meanwhile_are_looked_at_again(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    given = agreed(preview(ida, instance, **{"retention.ms": "3", "retention.ms:unit": "d"}))
    config(data_plane, instance)["retention.bytes"] = "5"
    assert "have changed since" in ida.post(place(instance), given, follow=True).content.decode()
    assert config(data_plane, instance)["retention.ms"] == "86400000"


@pytest.mark.parametrize("changes", ["", "[]", "{}", '{"retention.ms": 5}', "{" * 1_000, '{"x": {}}'])
def test_a_difference_nobody_was_shown_changes_nothing(
    changes: str, ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    given = agreed(preview(ida, instance, **{"retention.ms": "3", "retention.ms:unit": "d"})) | {"changes": changes}
    assert ida.post(place(instance), given).status_code == 302
    assert config(data_plane, instance) == {"retention.ms": "86400000"}


def test_more_replicas_to_be_in_sync_than_there_are_is_saved_with_a_warning(
    ida: Client, instance: Instance, data_plane: FakeDataPlane
) -> None:
    config(data_plane, instance)["min.insync.replicas"] = "1"
    warning = "min.insync.replicas is 2, and each partition has 1 replica"
    assert warning not in ida.get(place(instance)).content.decode()
    saved = ida.post(place(instance), agreed(preview(ida, instance, **{"min.insync.replicas": "2"})), follow=True)
    assert warning in saved.content.decode()


def test_viewers_read_and_do_not_change(
    stranger: Member, join: Callable[[str], Member], browse: Callable[[Member], Client], instance: Instance
) -> None:
    viewer = browse(join("viewer"))
    page = viewer.get(place(instance)).content.decode()
    assert "24 h" in page
    assert 'name="retention.ms"' not in page
    for act in ("preview", "save", ""):
        assert viewer.post(place(instance), {"act": act, **NOW}).status_code == 403
    assert browse(stranger).get(place(instance)).status_code == 404
