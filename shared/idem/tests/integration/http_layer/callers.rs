//! Who the caller is: what the layer was told.

use super::*;

use onetap_store::Key;

/// The user whose token an outer layer has verified.
#[derive(Clone)]
struct User(&'static str);

/// How often a service is asked by these requests, each with an `Authorization` header and of a user.
async fn asked_by(caller: Caller, requests: &[(&str, &'static str)]) -> usize {
    let asked = Asked::default();
    let service = counting(layer_for(&memory(), caller), &asked, |_| 200);
    for (token, user) in requests {
        let mut request = post("/a", Some("key"), "body");
        request.headers_mut().insert("authorization", token.parse().unwrap());
        request.extensions_mut().insert(User(user));
        ask(&service, request).await;
    }
    asked.times()
}

#[tokio::test]
async fn a_retry_with_a_refreshed_token_is_a_retry_where_the_caller_is_a_user() {
    let retries = [("Bearer one", "me"), ("Bearer two", "me"), ("DPoP three", "me")];
    let user = || Caller::by(|request| Some(request.extensions.get::<User>()?.0.to_owned()));
    assert_eq!(asked_by(user(), &retries).await, 1);
    assert_eq!(asked_by(Caller::anyone(), &retries).await, 1);
    assert_eq!(asked_by(Caller::authorization(), &retries).await, 3, "another value is another caller");
    let users = [("Bearer one", "me"), ("Bearer one", "you")];
    assert_eq!(asked_by(user(), &users).await, 2);
    assert_eq!(asked_by(Caller::anyone(), &users).await, 1, "they share the answer");
}

/// An upgrade must not forget what was done before it.
#[tokio::test]
async fn the_record_of_a_caller_keeps_its_name_between_versions() {
    let me = "idem:ba04dccb3261aaf4a89ee9c865d2321eeb6794e403bb6314f78f11b1bef7cd76";
    let nobody = "idem:11fc2462ca774a3c9a4a08094c420ffcca1848c75111e67c1619fb8332822728";
    for (caller, token, name) in [
        (Caller::authorization(), Some("Bearer me"), me),
        (Caller::authorization(), None, nobody),
        (Caller::anyone(), Some("Bearer me"), nobody),
        (Caller::by(|_| Some("Bearer me".to_owned())), None, me),
    ] {
        let store = memory();
        let service = counting(layer_for(&store, caller), &Asked::default(), |_| 200);
        let mut request = post("/a", Some("key"), "body");
        if let Some(token) = token {
            request.headers_mut().insert("authorization", token.parse().unwrap());
        }
        ask(&service, request).await;
        assert!(store.get(&Key::new(name).unwrap()).await.unwrap().is_some(), "{token:?}");
    }
}
