// The page's words, Traditional Chinese and English. What the bot says is the bot's own and stays as it is.
// prettier-ignore
const WORDS = {
  // key: [English, 正體中文]
  again: ["Tap again", "再點一次"],
  asked: ["asked", "已詢問"],
  bot: ["onetap bot", "onetap 小幫手"],
  own_bot: ["your bot", "你的機器人"],
  own_bot_note: ["on onetap-bot", "以 onetap-bot 打造"],
  own_message_hint: ["say something", "說點什麼…"],
  sent_last: ["what you sent last", "上一則訊息"],
  bot_note: ["weather · bookkeeping", "天氣・記帳"],
  both: ["Save both at once", "兩邊同時儲存"],
  break: ["Break", "斷線"],
  bus: ["The queue and the bus", "佇列與事件匯流排"],
  bus_note: ["Delivered again, out of order, halfway: one effect each.", "重送、亂序、做到一半：每個事件只生效一次。"],
  cancel: ["Cancel", "取消"],
  categories: ["Spending by category", "各分類支出"],
  chat: ["Chat", "聊天室"],
  chat_empty: ["Tap the menu or an example, or “Double tap”.", "點選單或範例，或試試「連點兩下」。"],
  client: ["SSE client", "SSE 用戶端"],
  client_broken: ["broken off", "已斷線"],
  client_ended: ["ended", "已結束"],
  client_live: ["connected", "連線中"],
  client_none: ["Send a job to follow it here, event by event.", "送出一個工作，就會在這裡逐筆跟到。"],
  client_resumed: ["resumed after {0}", "從 {0} 之後接續"],
  close: ["Close", "關閉"],
  col_amount: ["Amount", "金額"],
  col_category: ["Category", "分類"],
  col_count: ["Entries", "筆數"],
  col_date: ["Date", "日期"],
  col_item: ["Item", "品項"],
  col_payment: ["Paid by", "付款方式"],
  col_time: ["Time", "時間"],
  copies: ["copies", "份數"],
  count_dead: ["dead letters", "死信"],
  count_delivered: ["delivered", "投遞"],
  count_duplicates: ["duplicates", "重複"],
  count_effects: ["effects", "生效"],
  count_sent: ["sent", "送出"],
  count_waiting: ["waiting", "等待"],
  consumer: ["consumer", "消費者"],
  consumer_armed: ["will die", "將中斷"],
  consumer_idle: ["idle", "閒置"],
  consumer_killed: ["killed", "已中斷"],
  consumer_working: ["working", "處理中"],
  csv: ["Download CSV", "下載 CSV"],
  delay: ["The provider answers after", "主要服務延遲"],
  deliveries: ["The last tap", "最近一次點擊"],
  double: ["Double tap", "連點兩下"],
  down: ["Store down", "儲存體中斷"],
  entries: ["Entries of the month", "當月紀錄"],
  entries_count: ["{0} entries", "共 {0} 筆"],
  entries_more: ["The newest {0} of {1}. The CSV file has all of them.", "{1} 筆中最新的 {0} 筆；CSV 檔有全部。"],
  entries_one: ["1 entry", "共 1 筆"],
  entry_none: ["No last transaction. Write “午餐 120 現金” in the chat, or record a sample.", "還沒有上一筆交易。在聊天室輸入「午餐 120 現金」，或記一筆範例。"],
  entry_expired: ["Expired.", "已過期。"],
  examples: ["Examples", "範例"],
  expire: ["Delete", "刪除"],
  expires_never: ["no expiry", "不過期"],
  fallback: ["Fallback", "備援服務"],
  field: ["Field", "欄位"],
  filter: ["Filter keys", "篩選鍵"],
  forecast_failed: ["no forecast", "無預報"],
  forecast_fallback: ["fallback", "備援"],
  forecast_fetched: ["fetched", "新取得"],
  forecast_kept: ["kept", "快取"],
  forecast_stale: ["stale", "舊資料"],
  forget: ["Forget", "清除"],
  jobs: ["jobs", "工作數"],
  kept: ["Kept forecasts", "快取的預報"],
  keys_count: ["{0} keys", "{0} 個鍵"],
  keys_found: ["{0} of {1} keys", "{1} 個鍵中的 {0} 個"],
  keys_none: ["The store is empty.", "儲存體是空的。"],
  kill: ["Kill the consumer mid-batch", "處理到一半時中斷消費者"],
  language: ["中文", "English"],
  last: ["The last transaction", "上一筆交易"],
  last_note: ["An edit lands only on what it read.", "只修改讀到的那一筆。"],
  ledger: ["The ledger", "帳本"],
  ledger_down: ["The store is down: the ledger cannot be read. It is read again as soon as the store is back.", "儲存體中斷，暫時讀不到帳本；恢復後會自動重新讀取。"],
  ledger_failed: ["The ledger cannot be read: {0}", "讀不到帳本：{0}"],
  ledger_none: ["Nothing recorded in {0}. Try:", "{0} 沒有記帳紀錄。試試："],
  ledger_note: ["Every entry is kept, month by month.", "每一筆都留著，逐月可查。"],
  live_connecting: ["connecting", "連線中"],
  live_live: ["live", "即時"],
  live_lost: ["connection lost, trying again", "連線中斷，重試中"],
  lock: ["The lock", "處理鎖"],
  lock_note: ["One tap at a time, per user.", "每位使用者，一次只處理一下。"],
  lock_free: ["free", "未鎖定"],
  lock_held: ["held by {0}", "持有者 {0}"],
  match: ["If-Match", "If-Match"],
  match_off: ["without If-Match", "不帶 If-Match"],
  menu: ["Menu", "圖文選單"],
  menu_current: ["Here", "目前位置"],
  menu_home: ["Home", "住家"],
  menu_office: ["Office", "公司"],
  menu_other: ["Other", "其他"],
  menu_recent: ["Recent", "最近查過"],
  menu_settings: ["Settings", "設定"],
  message: ["Message", "訊息"],
  message_hint: ["午餐 120 現金, 永和天氣…", "午餐 120 現金、永和天氣…"],
  month: ["Month", "月份"],
  month_earlier: ["Previous month", "上個月"],
  month_later: ["Next month", "下個月"],
  open_note: ["Fail open: work goes on without the lock. What needs the store says so.", "故障時放行：不上鎖，照常處理；需要儲存體的會如實告知。"],
  outdate: ["Make stale", "設為舊資料"],
  path_busy: ["busy", "忙碌"],
  path_deduped: ["deduped", "已去重"],
  path_failed: ["failed", "失敗"],
  path_handled: ["handled", "已處理"],
  path_ignored: ["ignored", "略過"],
  path_open: ["fail open", "故障放行"],
  phone: ["A phone", "手機"],
  paused: ["Not asked for another {0}. “Forget” ends the pause.", "{0} 內不再詢問；按「清除」即可解除。"],
  provider: ["Provider", "主要服務"],
  provider_down: ["is down", "中斷"],
  provider_refuses: ["rate-limits (429)", "限流（429）"],
  provider_works: ["works", "正常"],
  race_none: ["Tap twice: what happened at once is shown here. Kept forecasts are forgotten first: otherwise the first tap is answered before the second arrives.", "連點兩下：同時發生了什麼，會畫在這裡。會先清除快取的預報，否則第一下馬上就回覆，兩下不會同時處理。"],
  read: ["Read again", "重新讀取"],
  record: ["Record a sample", "記一筆範例"],
  redeliver: ["Redeliver", "重送"],
  redeliver_note: ["same webhook", "同一個 webhook"],
  redelivered: ["LINE delivered the last webhook again", "LINE 重送了上一個 webhook"],
  resume: ["Resume", "接續"],
  save: ["Save", "儲存"],
  saved: ["saved", "已儲存"],
  saved_merged: ["saved, merged with the other edit", "已儲存，與另一邊的修改合併"],
  send: ["Send", "傳送"],
  send_job: ["Send a job", "送出工作"],
  send_place: ["Send a place", "傳送位置"],
  shuffle: ["shuffle", "打亂順序"],
  simulated: ["A real provider: its faults are simulated before it is called.", "真實的天氣服務：故障是在呼叫之前模擬的。"],
  skip: ["Skip to the chat", "跳到聊天室"],
  state: ["State", "狀態"],
  state_none: ["The state only ever goes up.", "狀態只會前進。"],
  stale: ["stale", "已過時"],
  store: ["The store", "儲存體"],
  stream: ["Stream", "事件流"],
  stream_none: ["Every shard’s stream, the newest on top.", "各分片的事件流，最新的在最上面。"],
  sum_income: ["Income", "收入"],
  sum_total: ["Spent", "支出"],
  tab: ["Tab {0}", "分頁 {0}"],
  tab_nothing: ["nothing read", "尚未讀取"],
  tagline: ["One tap, one effect.", "點一下，生效一次。"],
  twenty: ["Tap ×20", "連點 ×20"],
  unreachable: ["the runner cannot be reached", "連不到執行器"],
  user: ["User {0}", "使用者 {0}"],
  user_unread: ["User {0}, new messages", "使用者 {0}，有新訊息"],
  value: ["New value", "新的值"],
  verdict_equal: ["Equal: {0} events, {1} effects, {2} at the client", "相等：{0} 個事件、生效 {1} 次、用戶端收到 {2} 個"],
  verdict_more: ["Not equal: {0} events, {1} effects, {2} at the client", "不相等：{0} 個事件、生效 {1} 次、用戶端收到 {2} 個"],
  verdict_none: ["However often a job is sent, each of its events has one effect and is heard once.", "不論送出幾份，每個事件只生效一次，用戶端也只收到一次。"],
  verdict_wait: ["Under way: {0} events, {1} effects, {2} at the client", "進行中：{0} 個事件、生效 {1} 次、用戶端收到 {2} 個"],
  weather: ["The weather", "天氣"],
  weather_note: ["One call for many users. If the provider is late, down or rate-limiting: the fallback, then a kept forecast.", "多人共用一次詢問。太慢、中斷或限流時：先問備援，再用快取。"],
  who: ["Who taps", "誰在點"],
  will_pause: ["After a 429 it is not asked for a minute.", "回應 429 之後，一分鐘內不再詢問。"],
};

const LANGUAGES = ["en", "zh-Hant"];
const values = new WeakMap();
const listeners = [];
let current = LANGUAGES.indexOf(remembered() ?? (navigator.language.startsWith("zh") ? "zh-Hant" : "en"));
if (current < 0) current = 0;

// A browser that keeps nothing still shows the page.
function remembered() {
  try {
    return localStorage.getItem("language");
  } catch {
    return null;
  }
}

/** The words of `key`; `{0}` and on are the values. */
export function word(key, ...given) {
  const text = WORDS[key]?.[current] ?? key;
  return text.replace(/\{(\d)\}/g, (_, n) => given[n] ?? "");
}

/** Says `key` on `element`, and says it again when the language changes. */
export function say(element, key, ...given) {
  const text = word(key, ...given);
  element.dataset.t = key;
  values.set(element, given);
  if (element.textContent !== text) element.textContent = text;
  return element;
}

/** `element` is named by `key`, for those who hear the page. */
export function label(element, key, ...given) {
  element.dataset.tLabel = key;
  values.set(element, given);
  element.setAttribute("aria-label", word(key, ...given));
  return element;
}

/** For what is drawn from data rather than said once. */
export const onLanguage = (draw) => listeners.push(draw);

export function translate(root = document) {
  document.documentElement.lang = LANGUAGES[current];
  for (const element of root.querySelectorAll("[data-t]")) {
    element.textContent = word(element.dataset.t, ...(values.get(element) ?? []));
  }
  for (const element of root.querySelectorAll("[data-t-label]")) {
    element.setAttribute("aria-label", word(element.dataset.tLabel, ...(values.get(element) ?? [])));
  }
  for (const element of root.querySelectorAll("[data-t-placeholder]")) {
    element.placeholder = word(element.dataset.tPlaceholder);
  }
}

export function toggleLanguage() {
  current = 1 - current;
  try {
    localStorage.setItem("language", LANGUAGES[current]);
  } catch {
    // Then it is English or Chinese by the browser's own language next time.
  }
  translate();
  for (const draw of listeners) draw();
}
