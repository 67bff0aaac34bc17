"""A browser for the suite's sign-in pages, which consent by themselves: it follows redirects."""

import sys
import urllib.error
import urllib.request

if __name__ == "__main__":
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(sys.argv[1], timeout=10) as page:
            page.read()
    except urllib.error.HTTPError as error:
        sys.exit(f"The page answered {error.code}.")
