"""What mkdocs calls while it builds the site: the reference is written, formulas become MathML, links outside names."""

import html
import posixpath
import re
from pathlib import Path

from docs_numbers import NUMBERS
from docs_reference import pages
from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
TABLE = re.compile(r"<!-- numbers: (\w+) -->")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?:\.\./)+[^)\s]+)\)")


def on_config(config):
    """Pages that the navigation does not name come last in their section, if it begins with an index."""
    docs = Path(config.docs_dir)
    for section in config.nav:
        (pages,) = section.values()
        if isinstance(pages, list) and isinstance(pages[0], str):
            named = {page if isinstance(page, str) else next(iter(page.values())) for page in pages}
            found = (path.relative_to(docs).as_posix() for path in (docs / pages[0]).parent.glob("*.md"))
            pages += sorted({*found} - named)
    return config


def on_files(files: Files, config) -> Files:
    """Add the pages that are written from the code."""
    for name, text in pages().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page, config, files) -> str:
    """Fill in tables from results/. A link to a file of the checkout, such as README.md, becomes the file's name."""

    def named(found: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), found[2]))
        return f"{found[1]} (`{target.removeprefix('../')}`)" if target.startswith("../") else found[0]

    return TABLE.sub(lambda found: NUMBERS[found[1]](), LINK.sub(named, markdown))


def on_page_content(content: str, page, config, files) -> str:
    """Formulas as MathML, which browsers show without a script."""
    return FORMULA.sub(lambda found: math(html.unescape(found[2]), block=found[1] == "div"), content)


def math(latex: str, block: bool) -> str:
    """A formula as MathML, in which the bars of a norm keep no distance."""
    found = convert(latex.strip(), display="block" if block else "inline")
    return re.sub(r"<mo[^>]*>&#x0007C;</mo>", '<mo stretchy="false" lspace="0" rspace="0">|</mo>', found)
