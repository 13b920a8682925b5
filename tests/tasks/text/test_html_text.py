"""HTML is read as a reader sees it."""

import pytest

from tasks.text.html_text import text_of


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
        ("<P CLASS='a b' hidden>A<Br/>b <IMG src=x alt=y /> <CODE>c</Code\n></p>", "A\nb c"),
        ('<a href="x"target="y" ">one</a> <td style="z"; nowrap>two<hr>', "one\ntwo"),
        ("<b>x</ b><!-- no -->y<!doctype html>z", "xyz"),
    ],
)
def test_a_readers_view(source, text):
    assert text_of(source) == text


@pytest.mark.parametrize(
    "text",
    [
        "#include <stdio.h>",
        "vector<int> v; List<String> x; vector<vector<int>> w; Map<K, List<V>> m",
        "if (a<b && c>d) x",
        "if a<b and c>d: x",
        "n<data && n>min, a<b == c>d",
        "<groupId>org</groupId> <T/> </Foo bar>",
        "<?php echo $x; ?> Class<?> a<!b && c>d I </3 you >",
        "me <me@example.org>, <https://example.org/a>",
        "x <- 5 <= y << 2",
    ],
)
def test_code_in_plain_text_stays(text):
    assert text_of(text) == text


def test_unclosed_elements_cost_no_time():
    """Each would take minutes where the parser looks for the end of every tag."""
    code = "if (a<b && c<d) { x = 1; }\n" * 4000
    assert text_of(code) == code.strip()
    for source in ("<div " * 40_000, "<a b='" * 40_000, "<head>" * 40_000 + "</template>" * 40_000):
        text_of(source)


def test_code_among_html_stays():
    source = "<p>List<String> a &lt; b</p><pre>if (x<y &amp;&amp; z>w) <b>v</b></pre>"
    assert text_of(source) == "List<String> a < b\nif (x<y && z>w) v"
