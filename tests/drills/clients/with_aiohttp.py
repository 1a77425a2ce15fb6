"""Python's aiohttp, against one balancer."""

import asyncio

import aiohttp
from asking import BASE, FREE, IMAGE, advance, leaving, letter_of, picture, same, tell, turns


def say(client, content="hello", **more):
    return client.post(f"{BASE}/v1/chat/completions", json=turns(content, **more))


def asking(case):
    """A case with a client of its own."""

    def run():
        async def asked():
            by = {"Authorization": f"Bearer {FREE}"}
            async with aiohttp.ClientSession(headers=by, timeout=aiohttp.ClientTimeout(60)) as client:
                await case(client)

        asyncio.run(asked())

    run.__name__ = case.__name__
    return run


async def answered(client, content):
    async with say(client, content) as answer:
        return (await answer.json())["choices"][0]["message"]["content"]


@asking
async def chat(client):
    same(await answered(client, "hello"), "hello")


@asking
async def stream(client):
    async with say(client, stream=True) as answer:
        same("".join([letter_of(line.decode()) async for line in answer.content]), "hello")


@asking
async def image(client):
    same(await answered(client, picture()), f"{len(IMAGE)} bytes")


@asking
async def one_by_one(client):
    found = ""
    async with say(client, "in turns", stream=True) as answer:
        async for line in answer.content:
            if letter := letter_of(line.decode()):
                found += letter
                advance()
    same(found, "in turns")


@asking
async def leave(client):
    async with say(client, "forever", stream=True) as answer:
        await anext(aiter(answer.content))
        answer.close()


def cancel():
    with leaving():
        leave()


tell(chat, stream, one_by_one, image, cancel)
