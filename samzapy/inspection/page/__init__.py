"""The values of the coordinator's web page, before they are HTML.

A `Look` is a job at one moment (`page.look`); each view is made of the latest one. The module names are those of the
views: overview, task rows, hosts, requests, timeline, heat map, actions, moments.
"""
