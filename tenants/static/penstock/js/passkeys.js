// Passkeys: asks the browser for one, and sends what it answers with the form.

const toBytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (sign) => sign.charCodeAt(0));
const toText = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer)))
    .replace(/\+/g, "-")
    .replace(/\//g, "_")
    .replace(/=+$/, "");

const withBytes = (credentials) => (credentials ?? []).map((credential) => ({ ...credential, id: toBytes(credential.id) }));

function optionsOf(publicKey) {
  const options = { ...publicKey, challenge: toBytes(publicKey.challenge) };
  if (publicKey.user) options.user = { ...publicKey.user, id: toBytes(publicKey.user.id) };
  if (publicKey.excludeCredentials) options.excludeCredentials = withBytes(publicKey.excludeCredentials);
  if (publicKey.allowCredentials) options.allowCredentials = withBytes(publicKey.allowCredentials);
  return options;
}

function answerOf(credential) {
  const { response } = credential;
  const parts = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"];
  const sent = {};
  for (const part of parts) if (response[part]) sent[part] = toText(response[part]);
  if (response.getTransports) sent.transports = response.getTransports();
  return {
    type: credential.type,
    id: credential.id,
    rawId: toText(credential.rawId),
    authenticatorAttachment: credential.authenticatorAttachment,
    response: sent,
    clientExtensionResults: credential.getClientExtensionResults(),
  };
}

// Before anybody is signed in the options are fetched when they are needed: they begin a session.
async function wanted(form) {
  if (!form.dataset.optionsUrl) return JSON.parse(document.getElementById(form.dataset.options).textContent);
  const answer = await fetch(form.dataset.optionsUrl, { headers: { "X-Requested-With": "XMLHttpRequest" } });
  if (!answer.ok) throw new Error(String(answer.status));
  return (await answer.json()).request_options;
}

async function ask(form) {
  const { publicKey } = await wanted(form);
  const credential = await navigator.credentials[form.dataset.passkey]({ publicKey: optionsOf(publicKey) });
  form.elements.credential.value = JSON.stringify(answerOf(credential));
}

function say(form, words) {
  const box = form.querySelector("[data-passkey-said]");
  box.querySelector("span").textContent = words;
  box.hidden = false;
}

export function startPasskeys(root) {
  root.querySelectorAll("[data-passkey]").forEach((form) => {
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!window.PublicKeyCredential) return say(form, form.dataset.textMissing);
      try {
        await ask(form);
      } catch (error) {
        // Browsers bind no passkey to an address, and say so with this name.
        return say(form, error.name === "SecurityError" ? form.dataset.textMissing : form.dataset.textFailed);
      }
      form.submit();
    });
  });
}
