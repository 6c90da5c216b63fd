-- Applies batches, one after the other: of each batch all of its writes, or none. `apply` takes the four steps that `memory.rs`
-- takes in Rust. The functions after it each keep the bill low, or keep a batch whole.
--
-- KEYS   the key or log of each write but 'publish', in the order of the writes; a log with several appends is listed for each.
--        The log of an 'append', a 'trim' or a 'clear' is followed by its mark (see MARK_MILLIS)
-- ARGV   for each batch the number of its writes, and then six fields a write:
--        1 what    'check', 'put', 'delete', 'newer', 'append', 'trim' (an append to a log of limited length), 'extend' (an
--                  append to a log that exists), 'clear' or 'publish'
--        2 expect  'absent', 'is', 'absent-or', or '' where the write expects nothing;
--                  newer: 'older' or 'not-older' if the client has compared the value `old`, '' if it has not
--        3 old     the expected value; newer: the value that the client has compared
--        4 new     the value, record or message; for a put of a position, the number of its append (from 1)
--        5 ttl     in milliseconds, '' for ever
--        6 extra   put: 'text' or 'position'; newer: its seq; trim: about how many to keep; publish: the channel
-- reply  for each batch one of
--        { 1, position, … }             applied; a position for each append
--        { 3, position, … }             applied, but the server does not let a script publish: the client has to
--        { 0, n, there, n, there, … }   refused; the number (from 1) of each of the batch's keys that failed, and its value or nil
--        { 2, n, there, n, there, … }   nothing written; each of the batch's keys whose value only the client can compare
--        { 4, message }                 failed with this error, nothing written; or an error reply if it is the only batch
--
-- Redis does not roll back a script that fails, so in each batch every step that can fail comes before the first write,
-- or is the first write, or is undone. (A server that is out of memory, is a replica, lacks replicas or cannot save
-- refuses a script's first write, and no later one.)

local claimed, has_value, value, holds, is_newer, prepare, append, set, remove

local function list(reply, write, there)
  reply[#reply + 1] = write.n
  reply[#reply + 1] = there
end

local function apply(writes)
  if claimed(writes) then
    return { 1 }
  end

  -- Check: compare every expectation with the stored value. If one fails, the batch is refused, and the refusal lists
  -- every one that failed. (Reading a key of another type is an error.) Nothing is written before this step is complete.
  local refusal, unjudged = { 0 }, { 2 }
  for _, write in ipairs(writes) do
    local there = has_value(write) and value(write.key)
    if write.what == 'newer' then
      write.due = is_newer(write, there)
      if write.due == nil then
        list(unjudged, write, there)
      end
    elseif has_value(write) and not holds(write, there) then
      list(refusal, write, there)
    end
  end
  if #refusal > 1 or #unjudged > 1 then
    return #refusal > 1 and refusal or unjudged
  end
  prepare(writes)

  -- Append: before Set, because a put may store the position of an append. A log that must exist and does not refuses the batch.
  local positions = append(writes, refusal)
  if #refusal > 1 then
    return refusal
  end

  -- Set: apply the puts. All expectations hold at this point. Deletes and clears come after the writes that need memory: so
  -- a batch that only removes also works on a server without free memory.
  for _, write in ipairs(writes) do
    if write.what == 'put' or write.due then
      set(write, write.extra == 'position' and positions[tonumber(write.new)] or write.new)
    end
  end
  for _, write in ipairs(writes) do
    if write.what == 'delete' or write.last then
      remove(write)
    end
  end

  -- Publish: last, so that subscribers are notified only of writes that are applied. No client can read before the script
  -- has ended, so a subscriber reads all of them. (To a server that refuses PUBLISH, the client sends no such write.)
  local reply = { 1, unpack(positions) }
  for _, write in ipairs(writes) do
    if write.what == 'publish' and type(redis.pcall('PUBLISH', write.extra, write.new)) == 'table' then
      reply[1] = 3
    end
  end
  return reply
end

function has_value(write)
  return write.what == 'check' or write.what == 'put' or write.what == 'delete' or write.what == 'newer'
end

function holds(write, there)
  if there then
    return write.expect ~= 'absent' and there == write.old
  end
  return write.expect ~= 'is'
end

-- Whether a 'newer' is to be written, or nil if only the client can tell. The values of this store begin with their seq,
-- `{"seq":N,` or `{"seq":N}`. The client compares any other value, because a JSON parser here might not agree with the
-- client's. Lua is exact up to 15 digits.
function is_newer(write, there)
  if not there then
    return true
  end
  if write.expect ~= '' and there == write.old then
    return write.expect == 'older'
  end
  local seq = string.match(there, '^{"seq":([1-9]%d*)[,}]') or string.match(there, '^{"seq":(0)[,}]')
  if seq and #seq <= 15 then
    return tonumber(seq) < tonumber(write.extra)
  end
end

-- Saves reads: of each key its value, false if it has none, nil if it must be read. No other client runs meanwhile, so a
-- value that was read or written here stays known, also for the batches that follow.
local known = {}

-- The value of a key. An empty stream, which another program has left, does not count as a log: its name is free.
function value(key)
  if known[key] == nil then
    local there = redis.pcall('GET', key)
    if type(there) ~= 'table' then
      known[key] = there
    elseif string.find(there.err, 'WRONGTYPE', 1, true) and redis.call('XLEN', key) == 0 then
      known[key] = false
    else
      error(there.err, 0)
    end
  end
  return known[key]
end

-- Sets the value and the TTL of a put, and returns whether it did. The options after it are those of the command.
function set(write, new, ...)
  local done
  if write.ttl == '' then
    done = redis.call('SET', write.key, new, ...)
  else
    done = redis.call('SET', write.key, new, 'PX', write.ttl, ...)
  end
  if done then
    known[write.key] = new
  end
  return done
end

-- Saves the read of a batch that is only a put of an absent key (a lock, a claim): SET NX compares and writes. If the key
-- exists, the steps of `apply` find out what it holds.
local function is_claim(writes)
  return #writes == 1 and writes[1].what == 'put' and writes[1].expect == 'absent'
end

function claimed(writes)
  return is_claim(writes) and known[writes[1].key] == nil and set(writes[1], writes[1].new, 'NX')
end

-- Saves a GET for each key: reads the values of all batches, and the marks of the logs that they append to, with one MGET.
-- It answers nil also for a key of another type, so missing keys are checked with EXISTS, and read one by one if any
-- exists. (A mark of another type does not count.)
local function read_ahead(batches)
  local names, is_key, missing = {}, {}, {}
  for _, writes in ipairs(batches) do
    for _, write in ipairs(is_claim(writes) and {} or writes) do
      local name = has_value(write) and write.key or write.what ~= 'clear' and write.mark
      if name and is_key[name] == nil then
        names[#names + 1] = name
        is_key[name] = has_value(write)
      end
    end
  end
  -- One value takes one GET, whatever its type.
  if #names == 0 or #names == 1 and is_key[names[1]] then
    return
  end
  local there = redis.call('MGET', unpack(names))
  for n, name in ipairs(names) do
    if there[n] or not is_key[name] then
      known[name] = there[n]
    else
      missing[#missing + 1] = name
    end
  end
  if #missing > 0 and redis.call('EXISTS', unpack(missing)) == 0 then
    for _, name in ipairs(missing) do
      known[name] = false
    end
  end
end

-- Finds the last positions of the logs that are to be cleared. (A text in the place of a log is an error.)
-- Keeps a batch whole: if the user may not run a command of it, it fails before its first write. (Redis has checked KEYS
-- already. A server without access control lists does not have the function.)
local COMMANDS = {
  put = 'SET', newer = 'SET', delete = 'DEL', clear = 'DEL',
  extend = 'XADD XDEL XLEN DEL',
  append = 'XADD XDEL XLEN DEL PEXPIRE PERSIST',
  trim = 'XADD XDEL XLEN DEL PEXPIRE PERSIST XTRIM',
}

function prepare(writes)
  local function permit(command, key)
    if redis.acl_check_cmd and not redis.acl_check_cmd(command, key) then
      error('NOPERM the user may not do all of the batch')
    end
  end
  for _, write in ipairs(writes) do
    local newest = write.what == 'clear' and redis.call('XREVRANGE', write.key, '+', '-', 'COUNT', '1')[1]
    write.last = newest and newest[1]
    if write.what ~= 'clear' or write.last then
      for command in string.gmatch(COMMANDS[write.what] or '', '%u+') do
        permit(command, write.key)
      end
    end
    if write.last then
      permit('SET', write.mark)
    end
  end
end

local function failed(reply)
  return type(reply) == 'table' and reply.err
end

-- Keeps a batch whole: removes the records of these appends, and the streams that began with them.
local function undo(appended)
  for _, write in ipairs(appended) do
    redis.call('XDEL', write.key, write.position)
    if redis.call('XLEN', write.key) == 0 then
      redis.call('DEL', write.key)
    end
  end
end

-- A cleared log leaves its last position under a name of its own, its mark, until the server's clock has passed that position
-- by this time. A new stream takes its positions from the clock, which may step back, above all with a failover to a server
-- whose clock is behind. The name of a log may hold a user's id, so the mark does not stay for longer than clocks differ.
local MARK_MILLIS = 60 * 1000

-- Removes a key, or a log and leaves its mark.
function remove(write)
  redis.call('DEL', write.key)
  known[write.key] = false
  if not write.last then
    return
  end
  local millis = string.match(write.last, '^%d+')
  -- A position that no clock reaches, which another program has chosen, has a mark for ever.
  if #millis > 15 then
    redis.pcall('SET', write.mark, write.last)
  else
    redis.pcall('SET', write.mark, write.last, 'PXAT', string.format('%.0f', millis + MARK_MILLIS))
  end
  known[write.mark] = write.last
end

-- Whether a position is after another one. Their numbers may be too large for a number of Lua, so they are compared as texts.
local function is_after(position, other)
  local function padded(of)
    local major, minor = string.match(of, '^(%d+)-(%d+)$')
    return major and string.rep('0', 20 - #major) .. major .. string.rep('0', 20 - #minor) .. minor
  end
  local bound = padded(other)
  return not bound or padded(position) > bound
end

-- Adds the record of an append; the reply is its position, an error, or false if the log must exist and does not. The options
-- after it are those of the command. If the log was cleared and the clock is not after its last position, the record is
-- added once more behind that position.
local function add(write, ...)
  local command = { 'XADD', write.key, ... }
  for _, part in ipairs({ '*', 'data', write.new }) do
    command[#command + 1] = part
  end
  known[write.key] = nil
  local position, last = redis.pcall(unpack(command)), known[write.mark]
  if failed(position) or not last or is_after(position, last) then
    return position
  end
  redis.pcall('XADD', write.key, last, 'data', '')
  local behind = redis.pcall(unpack(command))
  if failed(behind) then
    undo({ { key = write.key, position = position }, { key = write.key, position = last } })
  else
    redis.call('XDEL', write.key, position, last)
  end
  return behind
end

-- Adds all records. Returns their positions, or lists in `refusal` the logs that must exist and do not.
--
-- Keeps a batch whole: a stream that another program has filled up to the last possible position accepts no record, a text
-- none at all, and NOMKSTREAM creates no log; then the appends before it are undone. What is trimmed cannot be undone, so
-- the logs that are trimmed come last.
-- Saves commands: only the very last append trims at once, the other logs are trimmed after it, and each log gets its TTL
-- once: the appends to one log keep the same.
function append(writes, refusal)
  local appends, appended, positions, kept = {}, {}, {}, {}
  for _, what in ipairs({ 'extend', 'append', 'trim' }) do
    for _, write in ipairs(writes) do
      if write.what == what then
        appends[#appends + 1] = write
      end
    end
  end
  for n, write in ipairs(appends) do
    if write.what == 'extend' then
      write.position = add(write, 'NOMKSTREAM')
    elseif #refusal > 1 then
      break
    elseif write.what == 'trim' and n == #appends then
      write.position = add(write, 'MAXLEN', '~', write.extra)
    else
      write.position = add(write)
    end
    if failed(write.position) then
      undo(appended)
      error(write.position)
    elseif write.position then
      appended[#appended + 1] = write
    else
      list(refusal, write, false)
    end
  end
  if #refusal > 1 then
    undo(appended)
    return
  end
  for n = #appends, 1, -1 do
    local write = appends[n]
    if write.what ~= 'extend' and not kept[write.key] then
      kept[write.key] = true
      if write.what == 'trim' and n < #appends then
        redis.call('XTRIM', write.key, 'MAXLEN', '~', write.extra)
      end
      if write.ttl == '' then
        redis.call('PERSIST', write.key)
      else
        redis.call('PEXPIRE', write.key, write.ttl)
      end
    end
  end
  for _, write in ipairs(writes) do
    positions[#positions + 1] = write.position
  end
  return positions
end

local FIELDS = 6
local batches, replies, listed, at = {}, {}, 0, 1
while at <= #ARGV do
  local writes, named = {}, 0
  local after = at + 1 + ARGV[at] * FIELDS
  for field = at + 1, after - 1, FIELDS do
    local write = {
      what = ARGV[field], expect = ARGV[field + 1], old = ARGV[field + 2],
      new = ARGV[field + 3], ttl = ARGV[field + 4], extra = ARGV[field + 5],
    }
    if write.what ~= 'publish' then
      named, listed = named + 1, listed + 1
      write.n, write.key = named, KEYS[listed]
    end
    if write.what == 'append' or write.what == 'trim' or write.what == 'clear' then
      listed = listed + 1
      write.mark = KEYS[listed]
    end
    writes[#writes + 1] = write
  end
  batches[#batches + 1] = writes
  at = after
end
read_ahead(batches)
for n, writes in ipairs(batches) do
  local ran, reply = pcall(apply, writes)
  if not ran then
    local message = type(reply) == 'table' and reply.err or tostring(reply)
    -- The error of one batch is its own reply, and the others are applied. One that is alone fails with the call, so that
    -- the client's connection sees the error too.
    if #batches == 1 then
      return redis.error_reply(message)
    end
    reply = { 4, message }
  end
  replies[n] = reply
end
return replies
