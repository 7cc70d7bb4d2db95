"""The console in a real browser: Debian's Chromium, one for all tests, through `hermes console`."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import axe_core_python
import pytest
from hermes_testkit import BrokerProcess
from replicated_cluster import ReplicatedCluster
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from hermes.client import Producer, ProducerConfig, SyncProducer
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.security.users_file import change_users_file

from .conftest import HOSTILE_GROUP
from .test_replicas import hermes, placed, throttle

WIDE, NARROW = (1280, 900), (360, 740)
PATIENCE_SECONDS = 60
AXE = Path(axe_core_python.__file__).with_name("axe.min.js")

PAGES = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/activity",
    "create a topic": "/create-topic",
    "settings": "/topics/activity/settings",
    "produce": "/topics/activity/produce?sent=0-0&offset=0",
    "messages": "/topics/activity/messages",
    "compressed": "/topics/compressed/messages",
    "damaged": "/topics/damaged/messages",
    "hostile": "/topics/hostile/messages",
    "message": "/topics/activity/message?partition=0-0&offset=0",
    "live": "/topics/activity/live",
    "dead letters": "/dead-letters",
    "redrive": "/topics/hostile.g.dead/redrive",
    "preview of a redrive": "/topics/hostile.g.dead/redrive?to=topic",
    "refused redrive": "/topics/hostile.g.dead/redrive?to=topic&rate=fast",
    "groups": "/groups",
    "group": "/groups/billing",
    "hostile group": "/groups/" + quote(HOSTILE_GROUP, safe=""),
    "reset": "/groups/billing/reset?to=latest",
    "refused reset": "/groups/billing/reset?to=time&value=soon",
    "delete a group": "/groups/billing/delete",
    "schemas": "/schemas",
    "schema": "/schemas/activity-value?against=1",
    "hostile schema": "/schemas/" + quote(HOSTILE_GROUP, safe=""),
    "brokers": "/brokers",
    "broker": "/brokers/0",
    "replicas": "/replicas",
    "move": "/replicas/change?do=move",
    "refused move": "/replicas/change?do=move&partition=%3Cb%3E&to=1",
    "copies": "/replicas/change?do=copies",
    "drain": "/replicas/change?do=drain",
    "mirrors": "/mirrors",
    "audit": "/audit",
    "no such page": "/nothing",
}

SECURITY = (
    "/security",
    "/security?q=al",
    "/security?principal=alice&operation=consume&kind=topic&name=clicks",
    "/security?principal=alice&operation=produce&kind=topic&name=clicks",
)


@contextmanager
def served_console(*options: str) -> Iterator[str]:
    """`hermes console` on a free port; where it is."""
    program = str(Path(sys.executable).with_name("hermes"))
    process = subprocess.Popen(
        [program, "console", "-l", "tcp:0:interface=127.0.0.1", "--actions", *options],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        yield re.search(r"http://\S+[^/\s]", line)[0]  # type: ignore[index]
    finally:
        process.terminate()
        rest = process.stderr.read()
        process.stderr.close()
        assert process.wait(PATIENCE_SECONDS) in (0, -15)
    # What was changed is noted, with who has done it; nothing else is said.
    assert [line for line in rest.splitlines() if "'anonymous' at 127.0.0.1 " not in line] == []


@pytest.fixture(scope="module")
def address(prepared: Any) -> Iterator[str]:
    where = f"{prepared.broker.host}:{prepared.broker.port}"
    with served_console("-b", where, "--registry", f"{prepared.broker.http}/registry") as served:
        yield served


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker's own console, with users and rules, whose administrator is whoever comes."""
    folder = tmp_path_factory.mktemp("guarded")
    users = folder / "users"
    change_users_file(
        users, lambda found: found.with_user("alice", "alice-2-in-chains"), may_create=True
    )
    settings = {
        "log_dir": str(folder / "log"),
        "coordination": "embedded",
        "coordination_listen": "tcp:0:interface=127.0.0.1",
        "http_listen": "tcp:0:interface=127.0.0.1",
        "ready_file": str(folder / "ready"),
        "users_file": str(users),
        "access": [
            {"principal": "anonymous", "operations": ["all"]},
            {"principal": "alice", "operations": ["consume"], "topic": "clicks"},
            {"principal": "alice", "operations": ["group"], "group": HOSTILE_GROUP},
        ],
    }
    process = BrokerProcess(folder / "broker", settings)
    (http,) = json.loads((folder / "ready").read_text())["http_listen"]
    yield f"http://127.0.0.1:{http['port']}"
    assert process.stop() == 0


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    profile = tmp_path_factory.mktemp("chromium")
    for argument in (
        "--headless=new",
        "--no-sandbox",  # it doesn't run as root otherwise
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--no-first-run",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(shutil.which("chromedriver") or "chromedriver")
    driver = webdriver.Chrome(options=options, service=service)
    driver.set_script_timeout(5 * PATIENCE_SECONDS)
    driver.set_page_load_timeout(5 * PATIENCE_SECONDS)
    yield driver
    driver.quit()


class Browser:
    """A tab of the console."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver = driver
        self.address = address
        self.size(*WIDE)
        self.theme("light")
        self.complaints()

    def open(self, path: str) -> None:
        self.driver.get(self.address + path)

    def size(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def theme(self, name: str) -> None:
        feature = {"name": "prefers-color-scheme", "value": name}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})

    def script(self, is_on: bool) -> None:
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not is_on})

    def find(self, selector: str) -> Any:
        """The first element, once there is one: a page may still be coming."""
        return self.wait(lambda: self.all(selector))[0]

    def follow(self, selector: str) -> None:
        """Click what leads to another page, and wait until this one is gone."""
        target = self.find(selector)
        document = self.document()
        target.click()
        self.wait(lambda: self.document() != document)

    def document(self) -> str:
        """The browser's identity of the document that is shown: each navigation gives a new one.

        An element of the page that goes can't tell: while the next one is put in its place,
        chromedriver answers for it now as stale and now with an inspector's error.
        """
        tree = self.driver.execute_cdp_cmd("Page.getFrameTree", {})
        return str(tree["frameTree"]["frame"]["loaderId"])

    def all(self, selector: str) -> list[Any]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def wait(self, condition: Any) -> Any:
        gone = (StaleElementReferenceException,)  # the page changed while it was looked at
        waiting = WebDriverWait(self.driver, PATIENCE_SECONDS, 0.05, ignored_exceptions=gone)
        return waiting.until(lambda _: condition())

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def retype(self, text: str) -> None:
        """Type over what the focused field holds."""
        marking = ActionChains(self.driver).key_down(Keys.CONTROL).send_keys("a")
        marking.key_up(Keys.CONTROL).send_keys(text).perform()

    def focused(self) -> Any:
        return self.driver.switch_to.active_element

    def reach(self, wanted: str, attribute: str = "id") -> None:
        """Go on by Tab until the field with this id, or other attribute, has the focus."""
        while self.focused().get_attribute(attribute) != wanted:
            self.press(Keys.TAB)

    def enter(self) -> None:
        """Press Enter, and wait until another document is shown."""
        document = self.document()
        self.press(Keys.ENTER)
        self.wait(lambda: self.document() != document)

    def complaints(self) -> list[str]:
        """What the browser complained about since the last call; a refused form is none."""
        messages = [each["message"] for each in self.driver.get_log("browser")]
        return [each for each in messages if not re.search("status of 40[04]", each)]

    def requested(self) -> set[str]:
        """The addresses that the browser has asked for since the last call."""
        messages = (
            json.loads(each["message"])["message"] for each in self.driver.get_log("performance")
        )
        return {
            each["params"]["request"]["url"]
            for each in messages
            if each["method"] == "Network.requestWillBeSent"
        }


@pytest.fixture
def browser(chromium: webdriver.Chrome, address: str) -> Iterator[Browser]:
    tab = Browser(chromium, address)
    tab.open("/static/icon.svg")
    chromium.delete_all_cookies()
    yield tab
    tab.script(True)
    assert tab.complaints() == []


# What axe finds on a page, in one line for each; how many rules it has tried comes first.
FIND_FAULTS = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: arguments[0]})
  .then((found) => done([found.passes.length + found.incomplete.length,
    ...found.violations.map((each) =>
    `${each.id}: ${each.help}: ${each.nodes.map((node) => node.html).slice(0, 3).join(" | ")}`)]),
    (error) => done([0, String(error)]));
"""


RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


@pytest.mark.parametrize(
    ("size", "theme", "rules"),
    [(WIDE, "light", RULES), (NARROW, "dark", ["wcag2aa"])],
    ids=["wide, light", "narrow, dark"],
)
def test_every_page_is_accessible_and_fits(
    browser: Browser, size: Any, theme: str, rules: list[str]
) -> None:
    """By axe-core's rules: names, contrast, headings, landmarks, tables, focus order."""
    browser.size(*size)
    browser.theme(theme)
    faults = {
        name: found
        for name, path in PAGES.items()
        if (found := _faults(browser, path, size, rules))
    }
    assert faults == {}


#: Two show all that there is between them; the others may differ in a colour.
LOOKS = [
    pytest.param(size, theme, id=f"{name}, {theme}", marks=() if each else pytest.mark.nightly)
    for name, size, theme, each in (
        ("wide", WIDE, "light", True),
        ("wide", WIDE, "dark", False),
        ("narrow", NARROW, "light", False),
        ("narrow", NARROW, "dark", True),
    )
]


@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_the_page_about_security_is_accessible_and_fits(
    chromium: webdriver.Chrome, guarded: str, size: Any, theme: str
) -> None:
    tab = Browser(chromium, guarded)
    tab.size(*size)
    tab.theme(theme)
    assert {path: found for path in SECURITY if (found := _faults(tab, path, size, RULES))} == {}
    assert tab.complaints() == []


COPIES = (
    "/replicas",
    "/replicas?show=moving",
    "/replicas/change?do=elect",
    "/replicas/change?do=cancel&partition=slow:0",
    "/replicas/change?do=copies&topics=slow&copies=1",
    "/topics/slow",
    "/brokers",
    "/brokers/1",
    "/",
)


@pytest.fixture(scope="module")
def moving(cluster: ReplicatedCluster) -> Iterator[str]:
    """A console of a cluster in which a partition moves, and goes on so."""
    placed(cluster, "slow", 1, 2)
    config = ProducerConfig(zookeeper_connect=cluster.coordination, acks="flushed")
    with Producer(config) as producer:
        for _ in range(10):
            producer.send("slow", b"m" * 400_000, partition=0)
            producer.flush()
    throttle(cluster, "1KB")
    hermes("replicas", "move", "-k", cluster.bootstrap.split(",")[0], "slow:0", "3,2")
    with served_console("-Z", cluster.coordination) as served:
        yield served


@pytest.mark.parametrize(("size", "theme"), LOOKS)
def test_the_pages_about_copies_are_accessible_and_fit(
    chromium: webdriver.Chrome, moving: str, size: Any, theme: str
) -> None:
    tab = Browser(chromium, moving)
    tab.size(*size)
    tab.theme(theme)
    assert {path: found for path in COPIES if (found := _faults(tab, path, size, RULES))} == {}
    tab.open("/replicas")
    tab.wait(lambda: tab.all("progress"))
    assert tab.complaints() == []


def test_the_page_about_security_answers_who_may_do_what(
    chromium: webdriver.Chrome, guarded: str
) -> None:
    tab = Browser(chromium, guarded)
    tab.open("/")
    tab.follow(".side nav a[href='/security']")
    assert tab.find("h1").text == "Security"
    tab.reach("principal", "name")
    tab.press(*"alice")
    tab.find("#operation").send_keys("consume")
    tab.reach("name", "name")
    tab.press(*"clicks")
    tab.enter()
    assert "principal=alice" in tab.driver.current_url
    assert tab.find("[name=principal]").get_attribute("value") == "alice"
    assert "of broker.yaml" in tab.find("main").text
    assert HOSTILE_GROUP in tab.find("main").text
    assert tab.all("main script, main img, main b") == []
    assert tab.complaints() == []


def _faults(browser: Browser, path: str, size: tuple[int, int], rules: list[str]) -> list[str]:
    """What axe finds on a page whose details are open, and whether it is too wide."""
    browser.open(path)
    for each in browser.all("details:first-of-type"):
        browser.driver.execute_script("arguments[0].open = true", each)
    # By the debugger's protocol: the page's own policy would refuse a script from elsewhere.
    axe = AXE.read_text(encoding="utf-8")
    browser.driver.execute_cdp_cmd("Runtime.evaluate", {"expression": axe})
    tried, *found = browser.driver.execute_async_script(FIND_FAULTS, rules)
    assert tried, (path, found)
    width = browser.driver.execute_script("return document.documentElement.scrollWidth")
    if width > size[0]:
        found.append(f"it is {width} pixels wide")
    return list(found)


def test_it_asks_nobody_but_itself(browser: Browser, address: str) -> None:
    browser.requested()
    for path in ("/", "/topics/hostile/messages", PAGES["hostile group"]):
        browser.open(path)
    asked = browser.requested()
    assert f"{address}/" in asked
    asked = {each for each in asked if not each.startswith(("data:", "about:"))}
    assert {each for each in asked if not each.startswith(address + "/")} == set()


def test_hostile_payloads_and_names_run_nothing(browser: Browser) -> None:
    for path in ("/topics/hostile/messages", "/topics/hostile/live", PAGES["hostile group"]):
        browser.open(path)
        for each in browser.all("details"):
            each.find_element(By.TAG_NAME, "summary").click()
        assert browser.all("main script, main img, main svg[onload], main b") == []
        assert browser.all("h1") != []  # an alert would have stopped the driver
    assert HOSTILE_GROUP in browser.find("h1").text


def test_the_overview_lives(browser: Browser, prepared: Any) -> None:
    browser.open("/")
    before = browser.find("[data-live='stat-size']").text
    with SyncProducer(prepared.broker.host, prepared.broker.port) as producer:
        messages = encode_message_set([b"x" * 500_000] * 4)
        producer.send_acknowledged([ProduceRequest("many-000", 0, messages)], Acks.FLUSHED)
    browser.wait(lambda: browser.find("[data-live='stat-size']").text != before)
    browser.wait(
        lambda: "L" in browser.find("[data-live='chart-written'] .line").get_attribute("d")
    )


def test_what_lives_keeps_the_focus(browser: Browser) -> None:
    browser.open("/topics?sort=size&order=desc")
    link = browser.find("tbody tr:nth-child(3) a")
    browser.driver.execute_script("arguments[0].focus(); window.mark = 1", link)
    cell = browser.find("tbody tr:nth-child(3) td:nth-of-type(2)")
    browser.driver.execute_script("arguments[0].textContent = 'stale'", cell)
    browser.wait(lambda: cell.text != "stale")
    assert browser.focused() == link


def test_a_hidden_tab_asks_for_nothing(browser: Browser, address: str) -> None:
    browser.open("/topics")
    hide = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    browser.driver.execute_script(hide % "true" + "window.asked = 0;")
    count = (
        "const f = window.fetch; window.fetch = (...a) => { window.asked += 1; return f(...a); };"
    )
    browser.driver.execute_script(count)
    # A turn that falls due while it is hidden does nothing; time is the page's own here.
    browser.driver.execute_script(
        "const main = document.getElementById('content'); main.dataset.refresh = '10';"
        "window.due = 0; setTimeout(() => { window.due = 1; }, 3000);"
    )
    browser.wait(lambda: browser.driver.execute_script("return window.due"))
    assert browser.driver.execute_script("return window.asked") == 0
    show = "document.dispatchEvent(new Event('visibilitychange'));"
    browser.driver.execute_script(hide % "false" + show)
    browser.wait(lambda: browser.driver.execute_script("return window.asked") > 0)


@pytest.mark.parametrize(
    ("path", "again"),
    [
        ("/topics", "document.dispatchEvent(new Event('visibilitychange'));"),
        ("/topics/many-001/live", "document.getElementById('pause').click();" * 2),
    ],
)
def test_what_is_being_asked_is_not_asked_once_more(
    browser: Browser, path: str, again: str
) -> None:
    """Else two go on asking, and a live tail shows messages twice."""
    browser.open(path)
    browser.driver.execute_script(
        "window.asked = 0;"
        "window.fetch = () => { window.asked += 1; return new Promise(() => {}); };"
    )
    browser.wait(lambda: browser.driver.execute_script("return window.asked"))
    assert browser.driver.execute_script(again + "return window.asked") == 1


def test_the_live_tail_follows_pauses_and_is_capped(browser: Browser, prepared: Any) -> None:
    def publish(text: str, count: int = 1) -> None:
        with SyncProducer(prepared.broker.host, prepared.broker.port) as producer:
            messages = encode_message_set([text.encode()] * count)
            producer.send_acknowledged([ProduceRequest("many-001", 0, messages)], Acks.FLUSHED)

    def newest() -> str:
        return browser.find("#tail > :first-child .value").text

    browser.open("/topics/many-001/live")
    browser.wait(lambda: "Live" in browser.find("#live-state").text)
    publish("seen at once")
    browser.wait(lambda: newest() == "seen at once")
    browser.press("p")
    assert browser.find("#pause").get_attribute("aria-pressed") == "true"
    publish("seen later")
    assert newest() == "seen at once"
    browser.press("p")
    browser.wait(lambda: newest() == "seen later")
    browser.driver.execute_script("document.getElementById('tail').dataset.most = '5'")
    browser.open("/topics/many-001/live")
    publish("many", 2000)
    browser.wait(lambda: newest() == "many")
    assert len(browser.all("#tail > *")) <= 500
    browser.wait(lambda: browser.all("#tail .skipped") or len(browser.all("#tail > *")) > 90)


def test_everything_is_reached_by_keyboard(browser: Browser) -> None:
    browser.open("/topics")
    browser.press(Keys.TAB)
    assert browser.focused().get_attribute("class") == "skip"
    browser.press(Keys.ENTER, Keys.TAB)
    assert browser.focused().get_attribute("id") == "q"
    browser.press(*"compressed", Keys.ENTER)
    browser.wait(lambda: len(browser.all("tbody tr")) == 1)
    while browser.focused().text != "compressed":
        browser.press(Keys.TAB)
    browser.press(Keys.ENTER)
    browser.wait(lambda: browser.find("h1").text == "compressed")
    while browser.focused().text != "Messages":
        browser.press(Keys.TAB)
    browser.press(Keys.ENTER)
    browser.wait(lambda: len(browser.all(".message")) == 3)
    browser.press("/")
    assert browser.focused().get_attribute("id") == "q"
    while not browser.all(".message summary:focus"):
        browser.press(Keys.TAB)
    browser.press(Keys.ENTER)
    assert browser.find(".message").get_attribute("open")
    assert browser.find(".message pre").text == "third"


@pytest.mark.parametrize(("path", "wanted"), [("/groups", "billing"), ("/topics", "compressed")])
def test_a_list_is_searched_while_somebody_types(browser: Browser, path: str, wanted: str) -> None:
    browser.open(f"{path}?sort=name&order=desc")
    document = browser.document()
    assert not browser.find(".search button").is_displayed()
    browser.press("/", *wanted[:5])
    browser.wait(lambda: [each.text for each in browser.all("tbody th")] == [wanted])
    assert browser.find("[data-live='found']").text.split()[1:3] == ["1", "of"]
    assert f"q={wanted[:5]}" in browser.driver.current_url
    browser.press(*"<b>")
    browser.wait(lambda: "<b>" in browser.find(".empty").text)
    assert browser.document() == document
    assert browser.focused().get_attribute("value") == wanted[:5] + "<b>"


def test_a_time_is_picked(browser: Browser) -> None:
    browser.open("/topics/activity/messages")
    assert not browser.find("#at").is_displayed()
    browser.find("#start option[value='time']").click()
    assert browser.find("#at").is_displayed()
    assert not browser.find("#value").is_displayed()
    assert browser.find("label[for='at']").text.startswith("Time in UTC")
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Asia/Tokyo"})
    browser.driver.execute_script(
        "const at = document.getElementById('at'); at.value = '2001-01-01T22:00:00';"
        "at.dispatchEvent(new Event('input', {bubbles: true}));"
    )
    browser.follow("#search .main")
    browser.wait(lambda: len(browser.all("details.message")) == 50)
    assert browser.find("#at").get_attribute("value").startswith("2001-01-01T22:00")
    assert "1/2/2001, 7:00:00 AM in Asia/Tokyo" in " ".join(
        browser.find("label[for='at']").text.split()
    )
    browser.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_an_offset_of_an_earlier_search_is_not_sent_while_it_is_hidden(browser: Browser) -> None:
    browser.open("/topics/activity/messages?start=offset&value=0")
    browser.find("#start option[value='last']").click()
    browser.follow("#search .main")
    assert "start=last" in browser.driver.current_url
    assert "value=" not in browser.driver.current_url
    assert not browser.find("#value").is_displayed()


def test_schemas_are_found_and_compared(browser: Browser) -> None:
    browser.open("/")
    browser.follow(".side nav a[href='/schemas']")
    browser.press("/", *"activity")
    browser.wait(lambda: [each.text for each in browser.all("tbody th")] == ["activity-value"])
    browser.follow("tbody a")
    browser.find("#against option[value='1'], #against option:last-child").click()
    browser.follow(".filters .main")
    assert '"name": "page"' in " ".join(each.text for each in browser.all(".diff .added"))
    browser.open(PAGES["hostile schema"])
    browser.follow("tbody a")
    assert browser.find("h1").text == "activity-value"
    assert browser.all("main script, main img, main b") == []


def test_a_narrow_menu_shows_the_page_that_is_open_and_that_it_scrolls(browser: Browser) -> None:
    browser.size(*NARROW)
    browser.open("/audit")
    menu, entry = browser.find(".side nav"), browser.find(".side nav [aria-current]")
    assert int(menu.get_property("scrollWidth")) > int(menu.get_property("clientWidth"))
    browser.wait(lambda: entry.rect["x"] + entry.rect["width"] <= NARROW[0])
    assert "gradient" in menu.value_of_css_property("background-image")


def test_it_works_without_script(browser: Browser) -> None:
    browser.script(False)
    browser.open("/topics")
    browser.find("#q").send_keys("compressed")
    browser.follow(".search button")
    browser.follow("tbody a")
    browser.follow(".tabs a:nth-child(2)")
    browser.find(".message summary").click()
    assert browser.find(".message pre").is_displayed()
    browser.find("#q").send_keys("second")
    browser.follow("#search .main")
    browser.wait(lambda: [each.text for each in browser.all(".message .value")] == ["second"])
    browser.open("/")
    assert browser.find("[data-live='stat-brokers']").text == "1"
    browser.follow(".themes button[value='dark']")
    assert browser.find("html").get_attribute("data-theme") == "dark"


def test_colours_follow_the_system_until_they_are_chosen(browser: Browser) -> None:
    def ground() -> str:
        return str(browser.find("body").value_of_css_property("background-color"))

    browser.open("/topics?q=many")
    light = ground()
    browser.theme("dark")
    dark = ground()
    assert light != dark
    browser.follow(".themes button[value='light']")
    assert (ground(), browser.driver.current_url.endswith("/topics?q=many")) == (light, True)
    browser.follow(".themes button[value='auto']")
    assert ground() == dark


def test_a_group_is_moved_in_two_steps(browser: Browser) -> None:
    browser.open("/groups/clicked")
    browser.find("#to option[value='latest']").click()
    browser.follow(".filters button")
    assert "Nothing is changed yet" in browser.find(".notice").text
    assert browser.find("tbody td").text == "0"
    browser.follow(".confirm button")
    assert browser.find("h1").text == "clicked"
    assert browser.find("[data-live='stat-lag']").text == "0 B"


def test_a_group_is_moved_and_deleted_by_keyboard(browser: Browser, prepared: Any) -> None:
    session = Session(prepared.broker.zookeeper_connect)
    session.start()
    store_offsets(session, "typed", {("activity", BrokerPartition(0, 0)): 0})
    session.stop()
    browser.wait(lambda: browser.open("/groups/typed") or browser.find("h1").text == "typed")
    browser.reach("to")
    browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.TAB, *"soon")
    browser.enter()
    assert "'soon' is not a point in time" in browser.find("#value-error").text
    assert browser.find("#to").get_attribute("value") == "time"
    assert browser.focused().get_attribute("id") == "value"
    browser.retype("2100-01-01")
    browser.enter()
    assert "Nothing is changed yet" in browser.find(".notice").text
    while browser.focused().text != "Change 1 offset":
        browser.press(Keys.TAB)
    browser.enter()
    assert "changed" in browser.find(".notice.fine").text
    assert browser.find("[data-live='stat-lag']").text == "0 B"
    while not browser.focused().text.startswith("Delete"):
        browser.press(Keys.TAB)
    browser.enter()
    browser.reach("confirm")
    browser.press(*"tyred")
    browser.enter()
    assert "not the group" in browser.find("#confirm-error").text
    assert browser.focused().get_attribute("name") == "confirm"
    browser.retype("typed")
    browser.enter()
    assert browser.find("h1").text == "Groups"
    assert "deleted" in browser.find(".notice.fine").text


def test_a_message_is_produced_by_keyboard(browser: Browser) -> None:
    browser.open("/topics/packed/produce")
    browser.reach("value", "name")
    browser.press(Keys.ARROW_DOWN)
    browser.reach("payload")
    browser.press(*"</textarea><script>")
    browser.reach("partition")
    browser.press(Keys.TAB)
    browser.enter()
    assert "not JSON" in browser.find("#payload-error").text
    assert browser.find("#payload").get_attribute("value") == "</textarea><script>"
    assert browser.find("[name=value]:checked").get_attribute("value") == "json"
    assert browser.focused().get_attribute("id") == "payload"
    browser.retype('["typed", "</textarea><script>"]')
    browser.reach("partition")
    browser.press(Keys.TAB)
    browser.enter()
    assert "Stored in partition 0" in browser.find(".notice.fine").text
    browser.follow(".notice a")
    assert "</textarea><script>" in browser.find("pre.payload").text
    assert browser.all("main script") == []


def test_a_message_is_produced_without_script(browser: Browser) -> None:
    browser.script(False)
    browser.open("/topics/packed")
    browser.follow(".tabs a[href$='/produce']")
    browser.find("#payload").send_keys("first\nsecond")
    browser.follow(".produce button.main")
    browser.follow(".notice a")
    assert browser.find("pre.payload").text == "first\nsecond"


def test_a_topic_is_created_altered_and_deleted_by_keyboard(browser: Browser) -> None:
    browser.open("/create-topic")
    browser.reach("name", "name")
    browser.press(*"typed", Keys.TAB, Keys.ARROW_DOWN, Keys.TAB, *"2", Keys.TAB, Keys.TAB)
    browser.press(Keys.ENTER)  # opens the settings
    browser.reach("retention_time", "name")
    browser.press(*"soon")
    browser.enter()
    assert "expected a duration" in browser.find("#setting-retention_time-error").text
    assert browser.find("#name").get_attribute("value") == "typed"
    assert browser.find("[name=format]:checked").get_attribute("value") == "kafka"
    assert browser.focused().get_attribute("name") == "retention_time"
    browser.retype("7d")
    browser.enter()
    assert browser.find("h1").text == "typed"
    assert browser.find("[data-live='stat-partitions']").text == "2"
    browser.follow(".tabs a[href$='/settings']")
    browser.reach("flush_messages", "name")
    browser.press(*"12")
    browser.enter()
    assert "changed" in browser.find(".notice.fine").text
    browser.follow("button[value='flush_messages']")
    assert browser.all("button[value='flush_messages']") == []
    browser.reach("partitions", "name")
    browser.press(*"3")
    browser.enter()
    assert "Now 3." in browser.find("#partitions-hint").text, browser.find("main").text
    browser.reach("confirm", "name")
    browser.press(*"typo")
    browser.enter()
    assert "not the topic" in browser.find("#confirm-error").text
    assert browser.focused().get_attribute("name") == "confirm"
    browser.retype("typed")
    browser.enter()
    assert browser.find("h1").text == "Topics"
    assert "deleted" in browser.find(".notice.fine").text


def test_a_topic_is_created_without_script_and_on_a_phone(browser: Browser) -> None:
    browser.script(False)
    browser.size(*NARROW)
    browser.open("/topics")
    browser.follow("a[href='/create-topic']")
    browser.find("#name").send_keys("by-hand")
    browser.follow("main .confirm button")
    assert browser.find("h1").text == "by-hand"
    browser.follow(".tabs a[href$='/settings']")
    browser.find("#confirm").send_keys("by-hand")
    browser.follow("button[name='delete']")
    assert browser.find("h1").text == "Topics"
