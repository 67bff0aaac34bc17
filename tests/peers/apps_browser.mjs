// Shows apps in Inspector's web page, with Debian's Chromium.
//
//   apps_browser.mjs CHROMIUM URL SCREENSHOT
//
// Opens every app that Inspector lists, lets each make calls of its own, and prints what they show: the texts of
// their pages by the description of their tool, in the order of the list.
import puppeteer from "puppeteer-core";

const [chromium, url, screenshot] = process.argv.slice(2);
const PATIENCE = {timeout: 60_000, polling: 100};
const seen = []; // what the page did, for a failure
const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
  defaultViewport: {width: 1400, height: 1000},
});
try {
  const page = await browser.newPage();
  const started = Date.now();
  const note = text => seen.push(`${Date.now() - started} ms: ${text}`);
  page.on("console", message => note(`console: ${message.text()}`));
  page.on("pageerror", error => note(`error: ${error.message}`));
  page.on("requestfinished", request => note(`${request.method()} ${request.url()}`));
  page.on("requestfailed", request => note(`failed: ${request.method()} ${request.url()}`));
  // Until its configuration is there, the page replaces the switch, and a press of the old one has no effect.
  await page.goto(url, {waitUntil: "networkidle2"});
  note("press the switch");
  await page.waitForFunction(() => {
    const connect = document.querySelector("input[role=switch]");
    connect?.click();
    return connect !== null;
  }, PATIENCE);
  await press(page, "label", "Apps");
  await page.waitForFunction(() => /MCP Apps \([1-9]/.test(document.body.innerText), PATIENCE);
  const apps = await page.$$eval("button.list-item", buttons => buttons.map(one => one.innerText));
  const shown = {};
  for (const app of apps) {
    await page.$$eval("button.list-item", (buttons, app) =>
      buttons.find(one => one.innerText === app).click(), app);
    const frame = await appFrame(page);
    const name = /\[([^\]]+)\]/.exec(app)?.[1] ?? app.split("\n")[0];
    shown[name] = await use(frame);
    await page.screenshot({path: screenshot.replace("%", Object.keys(shown).length)});
    await frame.evaluate(() => { document.body.dataset.seen = "yes"; });
  }
  console.log(JSON.stringify(shown));
} catch (error) {
  const [page] = (await browser.pages()).slice(-1);
  console.error(`the page shows:\n${await page.evaluate(() => document.body.innerText)}\n${seen.join("\n")}`);
  throw error;
} finally {
  await browser.close();
}

async function press(page, kind, text) {
  const found = (kind, text) =>
    [...document.querySelectorAll(kind)].find(one => one.innerText?.trim() === text);
  await page.waitForFunction(found, PATIENCE, kind, text);
  await page.evaluate((kind, text) =>
    [...document.querySelectorAll(kind)].find(one => one.innerText?.trim() === text).click(), kind, text);
}

// The frame of an app that was not looked at before.
async function appFrame(page) {
  for (const until = Date.now() + PATIENCE.timeout; Date.now() < until;) {
    for (const frame of page.frames().filter(one => one.url() === "about:srcdoc")) {
      const fresh = await frame
        .evaluate(() => document.body?.dataset.seen === undefined && document.body?.innerText !== "")
        .catch(() => false);
      if (fresh) return frame;
    }
    await new Promise(resolve => setTimeout(resolve, PATIENCE.polling));
  }
  throw new Error("no app was shown");
}

// Presses the app's button, or waits for its polls; what it shows before and after.
async function use(frame) {
  const text = () => frame.evaluate(() => document.body.innerText);
  const button = await frame.$("#get-time-btn");
  if (button === null) {
    await frame.waitForFunction(() => /\d\d:\d\d:\d\d/.test(document.body.innerText), PATIENCE);
    const before = await text();
    await frame.waitForFunction(before => document.body.innerText !== before, PATIENCE, before);
    return [before, await text()];
  }
  const time = () => frame.$eval("#server-time", element => element.innerText);
  await frame.waitForFunction(
    () => /^\d{4}-/.test(document.querySelector("#server-time").innerText), PATIENCE);
  const before = await time();
  await button.evaluate(element => element.click());
  await frame.waitForFunction(
    before => document.querySelector("#server-time").innerText !== before, PATIENCE, before);
  return [before, await time()];
}
