"""Console pages of archives."""

from __future__ import annotations

from django.urls import path, re_path

from archives.views import archives

urlpatterns = [
    path("archives/", archives.archives_page, name="page-archives"),
    path("archives/<str:archive_id>/", archives.archive_page, name="page-archive"),
    re_path(
        r"^archives/(?P<archive_id>[a-z0-9-]+)/(?P<act>run|pause|resume|delete)/$",
        archives.change_archive,
        name="page-archive-act",
    ),
]
