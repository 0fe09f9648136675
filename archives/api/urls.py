"""Routes of archives below /api/v1/."""

from django.urls import path

from archives.api import archives

urlpatterns = [
    path("archives", archives.ArchiveCollection.as_view()),
    path("archives/<str:archive_id>", archives.ArchiveDetail.as_view()),
    path("archives/<str:archive_id>/run", archives.ArchiveRun.as_view()),
    path("archives/<str:archive_id>/files", archives.ArchiveFileCollection.as_view()),
]
