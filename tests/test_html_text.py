"""HTML is read as a reader sees it."""

import pytest

from tasks.html_text import text_of


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "<p>Hi &amp; <b>b</b>ye&nbsp;!</p>\n\n<pre><code>x = 1\ny</code></pre>",
            "Hi & bye !\nx = 1\ny",
        ),
        ("plain   text", "plain text"),
        ("a < b and c > d", "a < b and c > d"),
        ("<script>var x</script><style>p {}</style>seen", "seen"),
        ("one<br>two<li>three", "one\ntwo\nthree"),
        ("<p>&lt;div&gt; &#8364;</p>", "<div> €"),
        ("<b>never closed", "never closed"),
        ("a  <![foo b\n\n<p>c", "a <![foo b\n<p>c"),
        ("<head><style>p {}</style>one<p>two", "one\ntwo"),
        ("one <style>two", "one\ntwo"),
        ("<head><script>var x</script>no</head>one", "one"),
        ("<template>a<template>b</template>c<head>d</template>e", "e"),
        ("", ""),
    ],
)
def test_a_readers_view(source, text):
    assert text_of(source) == text
